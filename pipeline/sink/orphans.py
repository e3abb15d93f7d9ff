"""Abort the open transactions that sinks have left.

    python -m oncelog.pipeline.sink.orphans --bootstrap B --prefix P

With --id ID the program aborts one transaction. Use the program for queries that will not be
started again, because prepared transactions do not time out, and block the readers of their topics.
`oncelog txn abort` calls the program. The output is a JSON list of {"id", "sink", "outcome":
"aborted" | "kept", "reason"}.

The program is safe beside a running query. It first calls InitProducerId for the transactional id
of the query's driver, as a new driver does. The query then stops before it can commit a transaction
that is aborted here. A batch is kept if the driver has recorded the decision to commit it, because
a restart of the query commits its transactions.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from ...client import Admin, ClusterView
from ...client.transaction_admin import TAKEOVER_TIMEOUT_MS
from ...wire.errors import UnknownTopicOrPartition
from ..command_line import add_login_options, login_of
from .cluster import SinkCluster, read_topic
from .decision import decode
from .login import ClusterLogin, client_keywords
from .names import PREFIX, control_id

TIMEOUT_S = 180.0  # a person waits; the TimeoutError says for what
ID_OF_SINK = re.compile(re.escape(PREFIX) + r"(.+)\.(?:g\d+\.[0-9a-f]+\.\d+|ctl)")


def sink_of(transactional_id: str) -> str | None:
    """Return the sink of a transactional id, or None for an id without a sink."""
    found = ID_OF_SINK.fullmatch(transactional_id)
    return found[1] if found is not None else None


async def end_orphans(
    login: ClusterLogin, prefix: str, *, only: str | None = None
) -> list[dict[str, Any]]:
    """Abort the open transactions of sinks with ids of this prefix. Return each outcome.

    only: the transactional id of a single transaction to abort.
    """
    view = login.open_view("oncelog-sink-orphans")
    try:
        admin = Admin(view)
        listed = await admin.transactions.list_transactions(
            prefix=prefix, states=["Ongoing"], needs_all_brokers=only is not None
        )
        by_sink: dict[str, list[str]] = {}
        for each in listed:
            sink = sink_of(each.transactional_id)
            if sink is not None and only in (None, each.transactional_id):
                by_sink.setdefault(sink, []).append(each.transactional_id)
        outcomes: list[dict[str, Any]] = []
        for sink, names in by_sink.items():
            outcomes += await _end_of_sink(view, sink, names)
        return outcomes
    finally:
        await view.close()


async def _end_of_sink(view: ClusterView, sink: str, names: list[str]) -> list[dict[str, Any]]:
    cluster = SinkCluster(view, sink, control_timeout_ms=TAKEOVER_TIMEOUT_MS)
    try:
        await cluster.fence()
        try:
            found = await read_topic(cluster.admin, timeout_s=TIMEOUT_S)
            decision = decode(sink, found.newest)
        except UnknownTopicOrPartition:
            decision = None
        kept = {} if decision is None else {c.transactional_id for c in decision.unfinished}
        orphans = [name for name in names if name not in kept and name != control_id(sink)]
        await cluster.children.abort(orphans)
    finally:
        await cluster.close()
    outcomes: list[dict[str, Any]] = []
    for name in names:
        reason = "nobody had decided to commit it"
        if decision is not None and name in kept:
            reason = (
                f"it belongs to batch {decision.batch_id}, which is decided: start query "
                f"{decision.query_id} again, and it will be committed"
            )
        outcome = "kept" if name in kept else "aborted"
        outcomes.append({"id": name, "sink": sink, "outcome": outcome, "reason": reason})
    return outcomes


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m oncelog.pipeline.sink.orphans")
    add_login_options(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--prefix", help="Abort the transactions of all ids with this prefix.")
    which.add_argument("--id", help="Abort the transaction of this id.")
    given = parser.parse_args(arguments)
    prefix = given.id if given.prefix is None else given.prefix
    try:
        keywords = client_keywords(login_of(given))
        login = ClusterLogin.of(keywords.pop("bootstrap_servers"), keywords)
    except ValueError as problem:
        parser.error(str(problem))
    print(json.dumps(asyncio.run(end_orphans(login, prefix, only=given.id))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

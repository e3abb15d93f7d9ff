"""The abort of transactions for `oncelog txn abort`, by an id, by a prefix, or of a hanging one.

The pipeline aborts the transactions of Spark sinks in a separate process, because only the pipeline
knows which of them a query will still commit. Transactions of dual writes are not aborted, because
their databases decide whether they commit. All others are aborted by an InitProducerId with their
transactional id.
"""

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from ...client.cluster_view import PartialList
from ...client.dual_write.names import writer_of
from ...wire.identifiers import TopicPartition
from ...wire.printable import printable
from ..cluster.advice import shell_command
from ..cluster.failure import Failure
from ..cluster.lookup import ClusterChoice
from ..cluster.secured.files import CLIENT_KINDS, USERS, client_file
from .explain import name_of
from .transaction_facts import holders

if TYPE_CHECKING:
    from ...client.admin import Admin

SINKS = "oncelog.spark."
OF_DUAL_WRITES = (
    "its database decides, and may have committed it. End it with: "
    "oncelog txn check-back --resolver URL (docs/databases.md)"
)
MODULE = "oncelog.pipeline.sink.orphans"
TIMEOUT_S = 300.0
HAD = {
    "Ongoing": "aborted what it had open",
    "PrepareCommit": "its transaction was being committed, and is committed",
    "PrepareAbort": "its transaction was being aborted, and is aborted",
}


def abort_id(cluster: ClusterChoice, name: str) -> str:
    """Abort the open transaction of a transactional id. Return a sentence about the result.

    A decided transaction ends as decided. Older producers of the id are fenced, even if nothing was
    open. Raises Failure for an id of a dual write.
    """
    if name.startswith(SINKS):
        found = _of_sinks(cluster, "--id", name)
        return "; ".join(f"{row['outcome']}: {row['reason']}" for row in found) or "nothing is open"
    if writer_of(name) is not None:
        raise Failure(f"{name} was left alone: {OF_DUAL_WRITES}")
    with cluster.admin() as admin:
        before = admin.transactions.describe(name)
        _, epoch = admin.transactions.end(name)
    had = HAD.get(before.state, "it had nothing open")
    return f"{had}; the new session has epoch {epoch}, an older producer is fenced"


def abort_prefix(cluster: ClusterChoice, prefix: str) -> PartialList[dict[str, Any]]:
    """Abort the open transactions of all transactional ids with this prefix.

    Returns a row (id, outcome, reason) for each. Transactions of dual writes are kept, and so are
    those that only an unreachable broker knows.
    """
    rows: list[dict[str, Any]] = []
    with cluster.admin() as admin:
        listed = admin.transactions.list_transactions(
            prefix=prefix, states=["Ongoing"], needs_all_brokers=False
        )
        names = [each.transactional_id for each in listed]
        for name in names:
            if writer_of(name) is not None:
                rows.append({"id": name, "outcome": "kept", "reason": OF_DUAL_WRITES})
            elif not name.startswith(SINKS):
                _, epoch = admin.transactions.end(name)
                reason = f"its producer is fenced: the new session has epoch {epoch}"
                rows.append({"id": name, "outcome": "aborted", "reason": reason})
    if any(name.startswith(SINKS) for name in names):
        rows += _of_sinks(cluster, "--prefix", prefix)
    return PartialList(sorted(rows, key=lambda row: row["id"]), listed.errors)


async def abort_hanging(admin: "Admin", key: TopicPartition, producer_id: int) -> int:
    """Abort a producer's hanging transaction in a partition. Return its first offset.

    Raises Failure when no transaction of the producer is open, or when a coordinator will end it.
    The partition's producers are requested a second time after the coordinator's answer. If the
    transaction has ended in between, the producer's next transaction must not be aborted.
    """
    suspects: set[int] = set()
    for holder in (await holders(admin, [key]))[key]:
        known = holder.transaction
        if holder.producer.producer_id == producer_id:
            if known is not None and holder.is_known(key):
                raise Failure(
                    f"It does not hang: {printable(known.transactional_id)} has it open. End it "
                    f"with: {shell_command('txn abort', known.transactional_id)}"
                )
            suspects.add(holder.producer.first_offset)
    for opened in (await admin.transactions.producers([key]))[key]:
        if opened.producer_id == producer_id and opened.first_offset in suspects:
            await admin.transactions.abort(*key, opened)
            return opened.first_offset
    raise Failure(
        f"Producer {producer_id} has no transaction open in {name_of(key)}. "
        f"See: {shell_command('txn producers', name_of(key))}"
    )


def _of_sinks(cluster: ClusterChoice, option: str, text: str) -> list[dict[str, Any]]:
    where = cluster.client_config()["bootstrap.servers"]
    command = [sys.executable, "-P", "-m", MODULE, "--bootstrap", where, option, text]
    file = cluster.command_config
    if file is None and cluster.bootstrap is None and cluster.profile is None:
        of_admin = client_file(cluster.data.resolve(), USERS[0], CLIENT_KINDS[0])
        file = of_admin if of_admin.exists() else None
    if file is not None:
        # The path, not the contents, since every user may see a command line.
        command += ["--command-config", str(file)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failure(
            f"Open transactions of sinks did not end in {TIMEOUT_S:.0f} s. Are enough nodes up? "
            "See: oncelog ps"
        ) from None
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise Failure(f"Open transactions of sinks could not be ended: {why[0]}")
    return json.loads(done.stdout)

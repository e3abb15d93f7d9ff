"""Commands that list transactions, explain why a reader waits, and end a transaction by hand.

All except `txn log` use the Kafka protocol, like Kafka's own kafka-transactions tool (KIP-664), so
they work with any Kafka-compatible cluster.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ..deploy.cluster.advice import shell_command
from ..deploy.cluster.failure import Failure
from ..deploy.cluster.targets import parse_partition
from ..deploy.cluster.terminal import say, show, show_one
from .check_back import check_back
from .common import (
    DEFAULT_DATA,
    QUERY,
    Data,
    Format,
    Query,
    add_family,
    headings,
    print_report,
    say_missing,
)

if TYPE_CHECKING:
    from ..client.transaction_admin import DescribedTransaction, PartitionProducer
    from ..deploy.inspect.explain import Explanation

# In `txn list`, further ids in alphabetical order have no age, epoch and timeout.
DESCRIBED_MAX = 1_000
LISTING_COLUMNS = headings(
    "id",
    "coordinator",
    "producer",
    "epoch",
    "state",
    "open_s",
    "timeout_s",
    "partitions",
    id="TRANSACTIONAL ID",
)
PRODUCER_COLUMNS = headings(
    "producer",
    "epoch",
    "last_sequence",
    "last_write_s",
    "coordinator_epoch",
    "open_since",
    last_write_s="LAST WRITE S AGO",
    open_since="OPEN SINCE OFFSET",
)
HANGING_COLUMNS = headings(
    "partition",
    "producer",
    "epoch",
    "open_since",
    "last_write_s",
    "id",
    last_write_s="LAST WRITE S AGO",
    open_since="OPEN SINCE OFFSET",
    id="TRANSACTIONAL ID",
)
ABORTED_COLUMNS = headings("id", "outcome", "reason", id="TRANSACTIONAL ID", reason="WHY")
LISTING_OPTIONAL = ("coordinator", "timeout_s", "epoch", "producer")
PRODUCER_OPTIONAL = ("coordinator_epoch", "last_sequence", "epoch")
LOG_OPTIONAL = ("term", "timeout_ms", "updated", "producer", "epoch", "started", "partitions")
LOG_COLUMNS = headings(
    "index", "term", "id", "state", "producer", "epoch", "timeout_ms", "partitions", "started",
    "updated", "note",
    id="TRANSACTIONAL ID",
)  # fmt: skip


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    commands = describe, producers, hanging, abort, check_back, explain, log
    about = "List, describe, explain or abort transactions."
    add_family(app, "txn", about, *commands, list=list_transactions)
    app.command(why)


def list_transactions(
    *,
    prefix: Annotated[str, Parameter(help="Select only ids with this prefix.")] = "",
    state: Annotated[
        list[str] | None,
        Parameter(
            help="List only ids in this state, e.g. Ongoing. The option may be repeated.",
            negative=(),
        ),
    ] = None,
    query: Query = QUERY,
) -> int:
    """List the transactional ids with coordinator, state, and age of open transactions.

    The exit code is 1 if a node does not answer.
    """
    with query.admin() as admin:
        listed = admin.transactions.list_transactions(
            prefix=prefix, states=state or (), needs_all_brokers=False
        )
        described = admin.transactions.describe_listed(listed[:DESCRIBED_MAX])
    rows: list[dict[str, Any]] = []
    for each in listed:
        known = described.get(each.transactional_id)
        open_s = _open_s(known) if known else None
        rows.append(
            {
                "id": each.transactional_id,
                "coordinator": each.coordinator,
                "producer": each.producer_id,
                "epoch": known.producer_epoch if known else None,
                "state": known.state if known else each.state,
                "open_s": open_s,
                "timeout_s": _timeout(known.timeout_ms) if known else None,
                "partitions": len(known.partitions) if open_s is not None else None,
            }
        )
    show(rows, query.format, columns=LISTING_COLUMNS, optional=LISTING_OPTIONAL)
    return say_missing(listed.errors, "transactional ids")


def describe(
    name: str,
    /,
    *,
    query: Query = QUERY,
) -> None:
    """Describe a transactional id with the state at its coordinator."""
    with query.admin() as admin:
        known = admin.transactions.describe(name)
    values = {
        "transactional id": known.transactional_id,
        "coordinator": known.coordinator,
        "state": known.state,
        "producer id": known.producer_id,
        "producer epoch": known.producer_epoch,
        "timeout s": _timeout(known.timeout_ms),
        "open s": _open_s(known),
        "partitions": [f"{topic}/{index}" for topic, index in known.partitions],
    }
    show_one(values, query.format)


def producers(
    partition: Annotated[str, Parameter(help="The partition as TOPIC/PARTITION.")],
    /,
    *,
    query: Query = QUERY,
) -> None:
    """List the producers that a partition's leader knows, with their open transactions."""
    key = parse_partition(partition)
    with query.admin() as admin:
        found = admin.transactions.producers([key])[key]
    show(
        [_producer_row(each) for each in found],
        query.format,
        columns=PRODUCER_COLUMNS,
        optional=PRODUCER_OPTIONAL,
    )


def hanging(
    topic: Annotated[str | None, Parameter(help="List only transactions in this topic.")] = None,
    /,
    *,
    query: Query = QUERY,
) -> int:
    """List open transactions that no coordinator will end. The exit code is 1 if there are any."""
    from ..deploy.inspect import transaction_facts

    with query.admin() as admin:
        topics = None if topic is None else [topic]
        found = admin.run(lambda a: transaction_facts.hanging(a, topics))
    rows = [
        {
            "partition": f"{key[0]}/{key[1]}",
            "id": holder.transaction.transactional_id if holder.transaction else None,
            **_producer_row(holder.producer),
        }
        for key, holder in found
    ]
    show(rows, query.format, columns=HANGING_COLUMNS, optional=PRODUCER_OPTIONAL)
    for row in rows:
        end = shell_command("txn abort", partition=row["partition"], producer_id=row["producer"])
        say(f"end it with: {end}")
    return 1 if rows else 0


def abort(
    name: Annotated[str | None, Parameter(help="The transactional id.")] = None,
    /,
    *,
    partition: Annotated[
        str | None,
        Parameter(help="Abort a hanging transaction in TOPIC/PARTITION by writing a marker."),
    ] = None,
    producer_id: Annotated[
        int | None, Parameter(help="The producer id of the hanging transaction, with --partition.")
    ] = None,
    prefix: Annotated[
        str | None, Parameter(help="Abort all open transactions whose ids have this prefix.")
    ] = None,
    query: Query = QUERY,
) -> int:
    """Abort transactions by id or prefix and fence their producers, or abort a hanging transaction.

    A transaction that a Spark sink has decided to commit is not aborted. A restart of its query
    commits it. Transactions of dual writes are left to `oncelog txn check-back`. With --prefix, the
    exit code is 1 if a node does not answer.
    """
    from ..deploy.inspect import abort_transactions

    ways = [name is not None, prefix is not None, partition is not None or producer_id is not None]
    if sum(ways) != 1 or (partition is None) != (producer_id is None) or prefix == "":
        raise Failure(
            "Which ones? oncelog txn abort ID, or oncelog txn abort --prefix PREFIX, or "
            "oncelog txn abort --partition TOPIC/PARTITION --producer-id N",
            exit_code=2,
        )
    if prefix is not None:
        rows = abort_transactions.abort_prefix(query, prefix)
        show(rows, query.format, columns=ABORTED_COLUMNS)
        return say_missing(rows.errors, "transactions")
    if name is not None:
        say(f"{name}: {abort_transactions.abort_id(query, name)}")
    else:
        assert partition is not None and producer_id is not None
        key = parse_partition(partition)
        with query.admin() as admin:
            since = admin.run(lambda a: abort_transactions.abort_hanging(a, key, producer_id))
        say(
            f"{partition}: aborted the transaction of producer {producer_id} from offset {since} on"
        )
    return 0


def explain(
    name: str,
    /,
    *,
    query: Query = QUERY,
) -> None:
    """Explain the state of a transactional id, how it will end, and which producers were fenced."""
    from ..deploy.inspect import transaction_facts

    with query.admin() as admin:
        _print_explanation(
            admin.run(lambda a: transaction_facts.explanation(a, name)), query.format
        )


def why(
    partition: Annotated[str, Parameter(help="The partition as TOPIC/PARTITION.")],
    /,
    *,
    group: Annotated[
        str | None, Parameter(help="Also explain the committed offset of this group.")
    ] = None,
    query: Query = QUERY,
) -> None:
    """Explain which transaction a partition's readers wait for, its owner, and its age."""
    from ..deploy.inspect import transaction_facts
    from ..deploy.inspect.explain import why as reasons

    key = parse_partition(partition)
    with query.admin() as admin:
        facts = admin.run(lambda a: transaction_facts.of_partition(a, *key, group))
    _print_explanation(reasons(facts), query.format)


def log(
    shard: Annotated[int, Parameter(help="The number of the shard, from 0.")],
    /,
    *,
    node: Annotated[
        int | None,
        Parameter(help="Read the journal of this node. The default is the longest journal."),
    ] = None,
    prefix: Annotated[str, Parameter(help="Select only ids with this prefix.")] = "",
    data: Data = DEFAULT_DATA,
    format: Format = "table",
) -> None:
    """Print the log of a coordinator's shard (Kafka: __transaction_state) from the nodes' disks.

    The command reads the Raft journals of running and stopped nodes. The last lines may not be
    committed yet. A line is committed when a majority of nodes has it.
    """
    from ..deploy.inspect.transaction_log import shard_log

    found = shard_log(data.resolve(), shard, node)
    rows = [row for row in found.rows() if str(row["id"] or "").startswith(prefix)]
    show(rows, format, columns=LOG_COLUMNS, optional=LOG_OPTIONAL)
    say(found.summary)


def _producer_row(producer: "PartitionProducer") -> dict[str, Any]:
    has_written = producer.last_timestamp_ms >= 0
    return {
        "producer": producer.producer_id,
        "epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_write_s": _age_s(producer.last_timestamp_ms) if has_written else None,
        "coordinator_epoch": producer.coordinator_epoch,
        "open_since": producer.first_offset if producer.is_open else None,
    }


def _print_explanation(explanation: "Explanation", output: str) -> None:
    lines = [{"about": about, "sentence": text} for about, text in explanation.lines]
    print_report(
        {"heading": explanation.heading, "lines": lines}, explanation.in_words().split("\n"), output
    )


def _timeout(timeout_ms: int) -> str | float:
    from ..deploy.inspect.explain import NO_TIMEOUT_MS

    return "none" if timeout_ms == NO_TIMEOUT_MS else timeout_ms / 1000


def _open_s(known: "DescribedTransaction") -> float | None:
    """Return the age of an open transaction in seconds, or None if no transaction is open."""
    return _age_s(known.start_ms) if known.start_ms >= 0 and known.partitions else None


def _age_s(since_ms: int) -> float:
    return round(max(0.0, time.time() - since_ms / 1000), 1)

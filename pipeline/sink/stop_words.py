"""The error texts of SinkStopped, with the cause and the remedy.

The file does no I/O. The texts about a wrong checkpoint are in batch_check.py.
"""

from .decision import Decision
from .names import shown


class SinkStopped(RuntimeError):
    """The sink stops, since rows might be lost or doubled.

    The text describes the remedy.
    """


def rows_missing(sink_id: str, decision: Decision, reason: str) -> SinkStopped:
    """Return the alarm that rows are missing, because a child of a decision was aborted."""
    if decision.times_out:
        return _torn(sink_id, decision, reason)
    return SinkStopped(
        f"ROWS OF BATCH {decision.batch_id} ARE MISSING in the output of sink {sink_id}: its "
        f"transaction {shown(decision.lost)} was decided to be committed, and somebody has "
        f"ended it otherwise ({reason}). Was it aborted by hand, or by a program that uses its id? "
        "The other parts of the batch are committed or can be. Write again what was lost, by "
        f"hand; then {_how_to_go_on(decision)}."
    )


def _torn(sink_id: str, decision: Decision, reason: str) -> SinkStopped:
    count, whole = len(decision.lost), len(decision.children)
    return SinkStopped(
        f"BATCH {decision.batch_id} IS TORN in the output of sink {sink_id}: of its {whole} "
        f"transactions {whole - count} are known to be committed, {count} cannot be ({reason}): "
        f"{shown(decision.lost)}. An outage was longer than transaction.timeout.ms, or "
        "somebody has ended them by hand. Look at what is there and write what is missing "
        f'(docs/spark-reference.md, "A torn batch"); then {_how_to_go_on(decision)}.'
    )


def _how_to_go_on(decision: Decision) -> str:
    return (
        f"say first_batch={decision.batch_id + 1} to go on (with a new checkpoint: and "
        f"replaces_query={decision.query_id!r})"
    )


def took_too_long(sink_id: str, batch_id: int, late: int, whole: int) -> SinkStopped:
    """Return the error of a batch in which transactions timed out before they could be committed.

    late: the number of these transactions. whole: the number of all transactions of the batch.
    """
    return SinkStopped(
        f"Batch {batch_id} of sink {sink_id} was not decided: {late} of the {whole} transactions "
        "of its tasks had timed out or were about to when the last task was done. Nothing of the "
        "batch is visible, and it will be written again in full. A batch must not take longer than "
        "its transactions may: raise transaction.max.timeout.ms on all brokers (and "
        "transaction_timeout_ms, if it is given), or give the query more cores; later batches are "
        'made smaller by maxOffsetsPerTrigger. mode="prepared" knows no such limit.'
    )


def taken_over_while_idle(sink_id: str) -> SinkStopped:
    return SinkStopped(
        f"Another driver of sink {sink_id} has taken over while this one had nothing "
        "to do, so this one ends. Only one query may use a sink_id at a time."
    )


def taken_over_at_start(sink_id: str, reason: str) -> SinkStopped:
    return SinkStopped(
        f"Another driver of sink {sink_id} took over while this one started "
        f"({reason}). Only one query may use a sink_id at a time. Nothing was written by "
        "this one; if no other one runs, start it again."
    )


def taken_over_while_undone(sink_id: str, batch_id: int, reason: str) -> SinkStopped:
    return SinkStopped(
        f"The transactions of batch {batch_id} of sink {sink_id} were aborted before one was "
        f"committed, and another driver took over before this could be written down ({reason}), so "
        "this one ends. If no other one runs, start the query again: nothing is lost or doubled."
    )


def not_decided(sink_id: str, batch_id: int) -> SinkStopped:
    return SinkStopped(
        f"Batch {batch_id} of sink {sink_id} was not decided: another driver took "
        "over, or the control transaction timed out. Nothing of the batch is visible, and it "
        "will be written again in full. Start the query again, if no other one has its place."
    )


def written_and_taken_over(sink_id: str, batch_id: int, reason: str) -> SinkStopped:
    return SinkStopped(
        f"Batch {batch_id} of sink {sink_id} is written, but another driver "
        f"has taken over ({reason}), so this one ends. If no other one runs, start the "
        "query again: nothing is lost or doubled."
    )


def reports_do_not_fit(partitions: list[int]) -> SinkStopped:
    return SinkStopped(
        f"The tasks of the batch reported partitions {partitions[:20]}, which are not each one "
        "once: nothing was decided. This is a fault of the sink or of Spark; please report it."
    )

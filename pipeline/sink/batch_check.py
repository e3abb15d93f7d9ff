"""Checks whether a batch of Spark must be written, was already written, or must be refused.

The file does no I/O. Spark passes a batch again, with the same number, until its own log says that
the batch is done. The sink's decision, a record in a topic of the cluster, says whether the batch
was written (decision.py). If Spark and the decision contradict each other, the checkpoint or the
topic was restored, deleted or exchanged. Continuing would lose or double rows, so the sink stops
with a message.
"""

from dataclasses import dataclass
from enum import Enum, auto

from .decision import NO_BATCH, Decision
from .steps import BatchGiven
from .stop_words import SinkStopped, rows_missing


class BatchAction(Enum):
    """Whether to write a batch, or to skip it because it is already written."""

    WRITE = auto()
    SKIP = auto()  # it is written already


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The user's options that allow a batch which the check would otherwise refuse.

    replaces_query: the id of an older query that this query replaces. first_batch: the first batch
    that this sink writes.
    """

    replaces_query: str | None = None
    first_batch: int | None = None


def check_batch(
    sink_id: str, decision: Decision | None, given: BatchGiven, terms: Terms
) -> BatchAction:
    """Compare a batch with the sink's last decision, and return whether to write or to skip it.

    Raises SinkStopped if the two contradict each other, and `terms` does not allow the batch.
    """
    batch = given.batch_id
    if decision is not None and decision.lost and not _goes_on(decision, given, terms):
        raise rows_missing(sink_id, decision, "it was found at an earlier start")
    last = NO_BATCH if decision is None else decision.batch_id
    if decision is not None and last != NO_BATCH and decision.query_id != given.query_id:
        if decision.query_id != terms.replaces_query:
            raise SinkStopped(
                f"Sink {sink_id} belongs to query {decision.query_id}, which has written up to "
                f"batch {last}; this is query {given.query_id}. Was the checkpoint deleted or "
                "another one given? Its batches would be numbered anew and taken for written. "
                "Give the old checkpoint back, or a new sink_id; if this query is to follow on "
                f"the old one, whatever that has read, say replaces_query={decision.query_id!r}."
            )
        last = NO_BATCH
    if batch == last and decision is not None:
        if decision.digest and given.digest and decision.digest != given.digest:
            raise SinkStopped(
                f"Sink {sink_id} has written batch {batch}, but the checkpoint has planned it anew "
                "with other offsets: it was restored from an older copy. Restore the newest one; "
                "if it is lost, begin with a new checkpoint where the written batch ended, and say "
                f"replaces_query={given.query_id!r}."
            )
        return BatchAction.SKIP
    if batch < last:
        raise SinkStopped(
            f"Sink {sink_id} has written up to batch {last}, and the checkpoint begins at batch "
            f"{batch}: it was restored from an older copy. Its batches may hold other rows than "
            "those that were written. Restore the newest checkpoint."
        )
    if batch == last + 1 or batch == terms.first_batch:
        return BatchAction.WRITE
    if last == NO_BATCH:
        raise SinkStopped(
            f"The checkpoint is at batch {batch}, and there is no decision of sink {sink_id}. "
            "Either the topic of decisions was lost, then batch "
            f"{batch} may be written already; or the query has run without this sink. If it is "
            f"certain that batch {batch} is not written, say first_batch={batch}."
        )
    raise SinkStopped(
        f"Sink {sink_id} has written up to batch {last}, and the checkpoint is at batch {batch}: "
        f"batches {last + 1} to {batch - 1} did not pass through it. Was the query run without "
        f"the sink, or the topic of decisions restored? If they need not be written, say "
        f"first_batch={batch}."
    )


def _goes_on(decision: Decision, given: BatchGiven, terms: Terms) -> bool:
    """Return whether the user accepts the lost rows of `decision`, with the option first_batch.

    The option must be the batch after the one with lost rows. If another query continues, it
    numbers its batches anew, so replaces_query must name the older query as well.
    """
    if terms.first_batch != decision.batch_id + 1:
        return False
    if given.query_id != decision.query_id:
        return terms.replaces_query == decision.query_id
    return given.batch_id >= decision.batch_id

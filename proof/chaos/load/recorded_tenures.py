"""Records the assignments of a member of a consumer group (KIP-848), for checks G1 to G3.

While the member lacks partitions of its assignment, the member reconciles (`reconciliations.py`).

A partition belongs to the member from a moment between the heartbeat and the answer that assigned
the partition. The member uses the partition from a later poll on. If the member was stopped before
it read the answer, or before that poll, other members may have the partition already.
"""

from collections.abc import Iterable

from ....wire.identifiers import TopicPartition
from ...judge.history.recorder import Recorder
from ...judge.history.rows import Handle
from ...judge.history.schema import NONE


class RecordedTenures:
    """A record of one member's heartbeats, and of the partitions that it takes and loses."""

    def __init__(self, recorder: Recorder, process: int, group: str) -> None:
        self._recorder, self._process, self._group = recorder, process, group
        self._owner = f"member {process}"
        self._open: dict[TopicPartition, tuple[Handle, int]] = {}
        self._said, self._said_ns, self._epoch = NONE, NONE, NONE
        self._given = NONE, NONE  # when the heartbeat began and was answered
        self._reconciliation: Handle | None = None

    def says(self, epoch: int) -> None:
        """Note that a heartbeat with this epoch is about to be sent."""
        self._said, self._said_ns = epoch, self._recorder.now_ns()
        if epoch <= 0:  # the target that it had is no longer its own
            self._reconciliation = None

    def hears(self, epoch: int, *, is_given: bool, is_settled: bool) -> None:
        """Note a heartbeat's answer without an error.

        The parameters are those of `HeartbeatWatcher`, which says what they mean.
        """
        if is_given:
            self._given = self._said_ns, self._recorder.now_ns()
        if epoch >= 0 and (epoch != self._epoch or self._said == 0):
            row = self._process, self._group, self._owner, self._said, epoch, self._said_ns
            self._recorder.add("member_epochs", *row, self._recorder.now_ns())
            self._epoch = epoch
        if self._said > 0:
            for handle, _ in self._open.values():
                self._recorder.tenure_confirmed(handle, self._said_ns)
        self._note_reconciliation(is_settled=is_settled)

    def _note_reconciliation(self, *, is_settled: bool) -> None:
        if self._reconciliation is not None:
            self._recorder.reconciliation_confirmed(self._reconciliation, self._said_ns)
        if is_settled:
            self._reconciliation = None
        elif self._reconciliation is None:
            self._reconciliation = self._recorder.reconciliation_begun(self._process, self._group)

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the member takes these partitions, which begins a tenure of each."""
        for key in partitions:
            where = f"{key[0]}/{key[1]}"
            handle = self._recorder.tenure_begun(
                self._process, self._group, where, self._owner, self._epoch, self._given
            )
            self._open[key] = handle, self._epoch

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """Record the end of the member's tenure of these partitions."""
        for key in partitions:
            if (tenure := self._open.pop(key, None)) is not None:
                self._recorder.tenure_ended(tenure[0])

    def epoch_of(self, partition: TopicPartition) -> int:
        """Return the epoch with which the member got a partition, or else its current epoch."""
        tenure = self._open.get(partition)
        return self._epoch if tenure is None else tenure[1]

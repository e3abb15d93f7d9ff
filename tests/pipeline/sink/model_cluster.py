"""A model of a cluster for the sink, with transactions by id and the committed rows.

The cluster follows KIP-98, 890 and 939. Under V2 the epoch rises with each EndTxn. A repeated
EndTxn is answered like the first one. InitProducerId aborts an open transaction. A transaction
times out only when sink_model.py chooses it.
"""

from collections import Counter
from typing import Any

from oncelog.client import PreparedTransaction
from oncelog.pipeline.sink.names import control_id

SINK = "s"
Handle = tuple[str, int, int]


def handle_of(child: PreparedTransaction) -> Handle:
    return child.transactional_id, child.producer_id, child.producer_epoch


class Refused(Exception):
    """A final refusal because of a fenced producer, a wrong state, or a forgotten id ("49")."""


class Transaction:
    def __init__(self, producer_id: int) -> None:
        self.producer_id, self.epoch, self.state = producer_id, 0, "Empty"
        self.pending: dict[int, Any] = {}


class ModelCluster:
    """The transactions by transactional id, the committed rows, and the sink's decisions.

    The decisions are the rows that were committed under the sink's control id.
    """

    def __init__(self, *, children_have_v2: bool = True) -> None:
        self._children_have_v2 = children_have_v2
        self.ids: dict[str, Transaction] = {}
        self.rows: Counter[Any] = Counter()
        self.decisions: dict[bytes, bytes | None] = {}
        self._producer_ids = 0

    def init(self, name: str) -> Handle:
        known = self.ids.get(name)
        if known is None:
            self._producer_ids += 1
            known = self.ids[name] = Transaction(self._producer_ids)
        else:
            if known.state == "Ongoing":
                known.pending = {}
            known.epoch += 1
            known.state = "Empty"
        return name, known.producer_id, known.epoch

    def _own(self, handle: Handle) -> Transaction:
        known = self.ids.get(handle[0])
        if known is None or known.producer_id != handle[1]:
            raise Refused("49")
        return known

    def produce(self, handle: Handle, sequence: int, row: Any) -> None:
        known = self._own(handle)
        if known.epoch != handle[2]:
            raise Refused("47")
        if known.state in ("Commit", "Abort") and not self._has_v2(handle[0]):
            raise Refused("48")  # a late repeat, recognised by its sequence or by verification
        known.state = "Ongoing"
        known.pending.setdefault(sequence, row)

    def end(self, handle: Handle, commit: bool) -> None:
        known = self._own(handle)
        wanted = "Commit" if commit else "Abort"
        has_v2 = self._has_v2(handle[0])
        if known.epoch == handle[2] + has_v2 and known.state in ("Commit", "Abort"):
            if known.state != wanted:
                raise Refused("48")
            return
        if known.epoch != handle[2]:
            raise Refused("90")
        if known.state != "Ongoing":
            raise Refused("48")
        if commit:
            for row in known.pending.values():
                if handle[0] == control_id(SINK):
                    self.decisions[row[0]] = row[1]
                else:
                    self.rows[row] += 1
        known.pending, known.state = {}, wanted
        known.epoch += has_v2

    def _has_v2(self, name: str) -> bool:
        return self._children_have_v2 or name == control_id(SINK)

    def standing(self, handle: Handle) -> str:
        """Return the state of the transaction that an attempt has written.

        It is "open", "ended" if it was aborted, or "other" if it was committed or is unknown.
        """
        known = self.ids.get(handle[0])
        if known is None or known.producer_id != handle[1]:
            return "other"
        raised = known.epoch - handle[2]
        if not raised and known.state == "Ongoing":
            return "open"
        if known.state == "Commit" and raised == self._has_v2(handle[0]):
            return "other"
        return "ended" if raised or known.state == "Abort" else "other"

    def listed(self) -> tuple[str, ...]:
        opened = [name for name, known in self.ids.items() if known.state == "Ongoing"]
        return tuple(name for name in opened if name != control_id(SINK))

    def time_out(self, name: str) -> None:
        known = self.ids[name]
        if known.state == "Ongoing":
            known.pending, known.state = {}, "Abort"
            known.epoch += 1

    def forget(self, name: str) -> None:
        if self.ids[name].state != "Ongoing":
            del self.ids[name]

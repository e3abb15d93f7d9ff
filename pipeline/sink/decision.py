"""The decision of a sink, which names the task transactions of its last batch that are committed.

The file does no I/O. A child is the transaction of one task attempt. The topic
`oncelog.spark.decisions` has one partition and is compacted. The newest record of the key `sink_id`
is the decision of that sink, as readable JSON. Children above CHUNK_BYTES_MAX are in further keys,
`sink_id#1`, `sink_id#2`... Each of these records names its batch and generation. The rest of a
larger, older decision is therefore not mistaken for a part of the newest one. All records of a
decision are written in one transaction of the control id.

Lost children are in the first record by name. If there are many, the record has a bit for each
child (hexadecimal, the first child lowest), because an alarm must not be too large to be written.

Offsets of a consumer group could not replace the topic. They expire, and a query that was stopped
for that long would write its last batch twice.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...client import PreparedTransaction

TOPIC = "oncelog.spark.decisions"
FORM = 1
TIMES_OUT_FORM = 2  # unfinished, with ordinary transactions: an older oncelog must refuse it
CHUNK_BYTES_MAX = 512 * 1024
CHUNKS_MAX = 1_000
LOST_BYTES_MAX = 64 * 1024  # of names in the head, which has a chunk of children beside them
OF_CHILDREN = "of_children"
NO_BATCH = -1
Record = tuple[bytes, bytes]


class UnreadableDecision(ValueError):
    """The error of a record in the topic of decisions that this version of the sink cannot read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The last decision of a sink.

    generation: the generation of the newest driver. decided_by: the generation of the driver that
    decided the batch. batch_id: NO_BATCH before the first batch. children: the child of each task
    attempt that counts. is_done: all children but the lost ones are known to be committed.
    times_out: the children are ordinary transactions. digest: the digest of the batch's entry in
    Spark's checkpoint, "" if unknown. digest_before: the digest of the previous batch's entry, for
    a decision that is undone. lost: aborted children, whose rows of the batch are missing.
    """

    generation: int
    query_id: str
    batch_id: int = NO_BATCH
    decided_by: int = 0
    children: tuple[PreparedTransaction, ...] = ()
    is_done: bool = True
    digest: str = ""
    digest_before: str = ""
    lost: tuple[str, ...] = ()
    times_out: bool = False

    @property
    def unfinished(self) -> tuple[PreparedTransaction, ...]:
        """Return the children that may still have to be committed."""
        if self.is_done:
            return ()
        lost = set(self.lost)
        return tuple(c for c in self.children if c.transactional_id not in lost)

    def claimed(self, generation: int) -> "Decision":
        return replace(self, generation=generation)

    def without(self, names: tuple[str, ...]) -> "Decision":
        """Return the decision with these children recorded as lost, for an alarm at each later
        start.

        The other children are committed by now. For ordinary transactions the decision is then
        done, because an expired id would not show its commit later.
        """
        return replace(self, lost=(*self.lost, *names), is_done=self.is_done or self.times_out)

    def done(self) -> "Decision":
        return replace(self, is_done=True)

    def undone(self) -> "Decision":
        """Return the decision as it was before this batch, so that the batch is written again.

        It is used when no child of this batch is committed or can be committed later.
        """
        return Decision(
            generation=self.generation,
            query_id=self.query_id,
            batch_id=self.batch_id - 1,
            digest=self.digest_before,
        )


def encode(sink_id: str, decision: Decision) -> list[Record]:
    """Encode the records of a decision, or raise ValueError for too many children."""
    chunks = _chunks(decision.children)
    if len(chunks) > CHUNKS_MAX:
        raise ValueError(
            f"{len(decision.children)} tasks wrote records, too many for one decision: "
            "coalesce() the batch to fewer partitions"
        )
    head: dict[str, Any] = {
        "form": TIMES_OUT_FORM if decision.times_out and decision.unfinished else FORM,
        "generation": decision.generation,
        "query_id": decision.query_id,
        "batch_id": decision.batch_id,
        "decided_by": decision.decided_by,
        "is_done": decision.is_done,
        "digest": decision.digest,
        "digest_before": decision.digest_before,
        "lost": _lost(decision),
        "times_out": decision.times_out,
        "chunks": len(chunks),
        "children": chunks[0] if chunks else [],
    }
    records = [(sink_id.encode(), _json(head))]
    for index, children in enumerate(chunks[1:], 1):
        part = {
            "form": FORM,
            "batch_id": decision.batch_id,
            "decided_by": decision.decided_by,
            "children": children,
        }
        records.append((f"{sink_id}#{index}".encode(), _json(part)))
    return records


def decode(sink_id: str, newest: Mapping[bytes, bytes | None]) -> Decision | None:
    """Decode the decision among the newest records by key, or return None if the sink has none.

    Raises UnreadableDecision.
    """
    value = newest.get(sink_id.encode())
    if value is None:
        return None
    try:
        head = _parse(value)
        batch_id, decided_by = int(head["batch_id"]), int(head["decided_by"])
        children = list(head["children"])
        for index in range(1, _count(head["chunks"])):
            part = _parse(newest.get(f"{sink_id}#{index}".encode()) or b"null")
            if (part["batch_id"], part["decided_by"]) != (batch_id, decided_by):
                raise ValueError(f"part {index} belongs to batch {part['batch_id']}")
            children += part["children"]
        return Decision(
            generation=int(head["generation"]),
            query_id=str(head["query_id"]),
            batch_id=batch_id,
            decided_by=decided_by,
            children=(found := tuple(_child(each) for each in children)),
            is_done=bool(head["is_done"]),
            digest=str(head["digest"]),
            digest_before=str(head.get("digest_before", "")),
            lost=_lost_of(head.get("lost", ()), found),
            times_out=bool(head.get("times_out", False)),
        )
    except (ValueError, KeyError, TypeError) as problem:
        raise UnreadableDecision(
            f"the decision of sink {sink_id} in {TOPIC} cannot be read ({problem!r}): it was "
            "written by something else, or by a newer oncelog"
        ) from None


def newest_by_key(
    records: Iterable[tuple[bytes | None, bytes | None]],
) -> dict[bytes, bytes | None]:
    """Return the newest value of each key, as compaction would keep it.

    The records are in the order of their offsets.
    """
    return {key: value for key, value in records if key is not None}


def _chunks(children: Iterable[PreparedTransaction]) -> list[list[list[Any]]]:
    chunks: list[list[list[Any]]] = []
    room = 0
    for child in children:
        row = [child.transactional_id, child.producer_id, child.producer_epoch, child.is_v2]
        size = len(_json(row)) + 1
        if not chunks or size > room:
            chunks.append([])
            room = CHUNK_BYTES_MAX
        chunks[-1].append(row)
        room -= size
    return chunks


def _lost(decision: Decision) -> Any:
    if len(_json(decision.lost)) <= LOST_BYTES_MAX:
        return decision.lost
    lost = set(decision.lost)
    bits = "".join("01"[c.transactional_id in lost] for c in reversed(decision.children))
    return {OF_CHILDREN: f"{int(bits, 2):x}"}  # an older oncelog sees a lost child and stops


def _lost_of(said: Any, children: tuple[PreparedTransaction, ...]) -> tuple[str, ...]:
    if not isinstance(said, dict):
        return tuple(map(str, said))
    bits = reversed(f"{int(said[OF_CHILDREN], 16):b}")
    return tuple(c.transactional_id for c, bit in zip(children, bits, strict=False) if bit == "1")


def _child(row: Any) -> PreparedTransaction:
    name, producer_id, epoch, is_v2 = row
    return PreparedTransaction(str(name), int(producer_id), int(epoch), bool(is_v2))


def _count(value: Any) -> int:
    count = int(value)
    if not 0 <= count <= CHUNKS_MAX:
        raise ValueError(f"{count} parts")
    return count


def _parse(value: bytes) -> dict[str, Any]:
    found = json.loads(value)
    if not isinstance(found, dict):
        raise ValueError("a part is missing")
    if found.get("form") not in (FORM, TIMES_OUT_FORM):
        raise ValueError(f"form {found.get('form')!r} is not known here")
    return found


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

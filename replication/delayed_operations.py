"""Requests that wait in the purgatory: produces for the high watermark, fetches for bytes."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

BYTES_UNKNOWN = 1 << 62


@dataclass(slots=True, eq=False)
class DelayedProduce:
    """A produce with acks=all that waits for its offsets to be committed.

    `required` maps each partition to the offset that must be committed (the batch's next offset);
    `outcomes` fills with an error code for each.
    """

    required: Mapping[Hashable, int]
    deadline_ms: int
    context: object = None  # the shell's: how to answer
    outcomes: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    is_done: bool = False


@dataclass(slots=True, eq=False)
class DelayedFetch:
    """A fetch short of `missing_bytes`; `offsets` maps each partition to its fetch offset.

    `hidden_bytes` is set for a reader of committed data: for each partition, how much is committed
    beyond its fetch offset but hidden by an open transaction (BYTES_UNKNOWN where it was not
    counted). All of it becomes readable at once when the last stable offset moves.
    """

    offsets: Mapping[Hashable, int]
    missing_bytes: int
    deadline_ms: int
    context: object = None
    is_done: bool = False
    hidden_bytes: dict[Hashable, int] | None = None

"""Requests that wait in the purgatory, produces for the high watermark and fetches for bytes."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

BYTES_UNKNOWN = 1 << 62


@dataclass(slots=True, eq=False)
class DelayedProduce:
    """A produce that waits until its offsets are committed (acks=all), or synced (acks=1).

    `required` maps each partition, or its key for syncs, to the next offset after the batch.
    `outcomes` gets an error code for each partition.
    """

    required: Mapping[Hashable, int]
    deadline_ms: int
    context: object = None  # used by the caller to answer
    outcomes: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    is_done: bool = False


@dataclass(slots=True, eq=False)
class DelayedFetch:
    """A fetch that still needs `missing_bytes`. `offsets` maps each partition to its fetch offset.

    `hidden_bytes` is set for a read_committed consumer. For each partition it has the number of
    committed bytes after the fetch offset that an open transaction hides (BYTES_UNKNOWN if not
    counted). The hidden bytes become readable together when the last stable offset moves.
    """

    offsets: Mapping[Hashable, int]
    missing_bytes: int
    deadline_ms: int
    context: object = None
    is_done: bool = False
    hidden_bytes: dict[Hashable, int] | None = None

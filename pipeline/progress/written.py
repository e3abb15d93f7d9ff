"""How many rows an exactly-once sink has written in a batch, for who reports on the batch.

Spark does not know: to it a foreachBatch is a function. The sink and the listener live in the
driver's Python, and nothing else is shared by them. A batch is remembered until it is asked for,
and where nobody listens, for KEPT batches.
"""

import threading

KEPT = 1_000
Batch = tuple[str, int]  # id of the query, id of the batch

_lock = threading.Lock()
_rows: dict[Batch, int] = {}


def note_written(query_id: str, batch_id: int, row_count: int) -> None:
    """Said by a sink when its part of a batch is over; those of several sinks add up."""
    with _lock:
        _rows[query_id, batch_id] = _rows.pop((query_id, batch_id), 0) + row_count
        while len(_rows) > KEPT:
            del _rows[next(iter(_rows))]


def take_written(query_id: str, batch_id: int) -> int | None:
    """The rows of a batch, told once; None when no sink has said anything."""
    with _lock:
        return _rows.pop((query_id, batch_id), None)

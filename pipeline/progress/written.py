"""The number of rows that an exactly-once sink has written in a batch, for reports.

Spark does not know this number, because a foreachBatch is only a function for Spark. The sink and
the listener share only the driver's Python process. A number is kept until the listener takes it.
Without a listener the last KEPT batches are kept.
"""

import threading

KEPT = 1_000
Batch = tuple[str, int]  # id of the query, id of the batch

_lock = threading.Lock()
_rows: dict[Batch, int] = {}


def note_written(query_id: str, batch_id: int, row_count: int) -> None:
    """Add a sink's number of written rows to the count of a batch.

    A batch may be written by several sinks.
    """
    with _lock:
        _rows[query_id, batch_id] = _rows.pop((query_id, batch_id), 0) + row_count
        while len(_rows) > KEPT:
            del _rows[next(iter(_rows))]


def take_written(query_id: str, batch_id: int) -> int | None:
    """Remove and return the row count of a batch, or None when no sink has recorded one."""
    with _lock:
        return _rows.pop((query_id, batch_id), None)

"""Reads a few records of a partition, with the outcome of their transactions.

A read_committed fetch returns the aborted transactions. If the caller also wants records of open
transactions, a second fetch reads the records from the last stable offset on.
"""

import asyncio
from typing import Any

from ..client.admin import EARLIEST, LATEST, Admin
from ..wire.errors import OffsetOutOfRange, error_for
from ..wire.identifiers import TopicPartition
from ..wire.messages import fetch
from .record_rows import COMMITTED, PLAIN, record_rows

FETCH, BY_NAME_NEWEST = 1, 12
FETCH_BYTES_MAX, ROWS_MAX = 256 * 1024, 200
# limit of one request, however many records are aborted; the next request continues from there
FETCHES_MAX = 8
WAIT_MS = 0


async def read_records(
    admin: Admin,
    key: TopicPartition,
    *,
    offset: int | None = None,
    time_ms: int | None = None,
    is_committed: bool = False,
    limit: int = 50,
) -> dict[str, Any]:
    """Return at most `limit` rows from an offset or a time on, or the last rows without both.

    A row has a record, a marker or an unreadable batch. `limit` is lowered to ROWS_MAX. With
    `is_committed`, markers and records of open and aborted transactions are left out. At most 8
    Fetch requests are sent, and the result's `next_offset` is the offset to continue from.
    """
    limit = max(1, min(limit, ROWS_MAX))
    start = (await admin.list_offsets({key: EARLIEST}))[key]
    stable = (await admin.list_offsets({key: LATEST}, read_committed=True))[key]
    end = (await admin.list_offsets({key: LATEST}))[key]
    until = stable if is_committed else end
    if offset is None and time_ms is not None:
        found = (await admin.list_offsets({key: max(0, time_ms)}))[key]
        offset = found if found >= 0 else until
    if offset is None:
        offset = until - limit
    position = offset = min(max(offset, start), until)
    rows: list[dict[str, Any]] = []
    fetches = 0
    while len(rows) < limit and position < until and fetches < FETCHES_MAX:
        fetches += 1
        is_past = position >= stable
        answer = await _fetch(admin, key, position, is_committed=not is_past)
        new = await asyncio.to_thread(
            record_rows,
            answer.records,
            () if is_past else answer.aborted_transactions or (),
            from_offset=position,
            last_stable=stable,
            end=end,
            limit=limit - len(rows) if not is_committed else ROWS_MAX * 10,
        )
        if not new:
            break
        position = new[-1]["offset"] + 1
        rows += [row for row in new if not is_committed or _is_visible(row)]
    rows = rows[:limit]
    return {
        "topic": key[0],
        "partition": key[1],
        "isolation": "read_committed" if is_committed else "read_uncommitted",
        "offset": offset,
        "next_offset": rows[-1]["offset"] + 1 if len(rows) >= limit else position,
        "log_start": start,
        "last_stable": stable,
        "high_watermark": end,
        "records": rows,
    }


def _is_visible(row: dict[str, Any]) -> bool:
    """Return whether a read_committed consumer gets the record of a row."""
    return row["marker"] is None and row["outcome"] in (COMMITTED, PLAIN, None)


async def _fetch(
    admin: Admin, key: TopicPartition, offset: int, *, is_committed: bool
) -> fetch.FetchedPartition:
    view = admin.view

    async def attempt() -> fetch.FetchedPartition:
        leader = await view.leader_of(*key)
        version = leader.version_for(FETCH, newest=BY_NAME_NEWEST)
        wanted = fetch.FetchPartition(key[1], offset, FETCH_BYTES_MAX)
        request = fetch.FetchRequest(
            WAIT_MS,
            0,
            [fetch.FetchTopic(key[0], None, [wanted])],
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=int(is_committed),
        )
        body = fetch.encode_request(request, version)
        answer = fetch.decode_response(await leader.send(FETCH, version, body), version)
        if answer.error_code:
            raise error_for(answer.error_code)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise error_for(found.error_code)
        return found

    try:
        return await view.retrying(attempt, timeout_ms=admin.timeout_ms, topics=[key[0]])
    except OffsetOutOfRange:  # what was there has been removed meanwhile
        return fetch.FetchedPartition(key[1])

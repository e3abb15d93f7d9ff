"""Load cases with large fetches.

Some clients never read the answer. Another one names the same partition many times in a request.
"""

import contextlib
import os
import time

from oncelog.wire.messages import fetch
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.records import Record, encode_batch

from .connection import FETCH, Connection
from .stage import Stage

RSS_MAX_BYTES = 250_000_000
RECORD_BYTES = 10_000


def unread(stage: Stage) -> None:
    readers, held_s = 40, stage.size(12, 2)
    stage.create("unread", 1)
    rows = [Record(i, 0, None, os.urandom(RECORD_BYTES)) for i in range(90)]
    stage.produce_everywhere("unread", encode_batch(rows), times=stage.size(67, 30))
    (leader,) = stage.leaders("unread")
    body = _body("unread", [FetchPartition(0, 0, 55 << 20)], max_bytes=55 << 20)
    with contextlib.ExitStack() as stack, stage.watched(f"{readers} readers do not read") as watch:
        for _ in range(readers):
            connection = Connection(stage.address(leader))
            stack.callback(connection.close)
            connection.send(FETCH, 12, body)
        time.sleep(held_s)
    assert watch is not None and stage.outcome.seen is not None
    for node in stage.outcome.seen.probe.nodes:
        size = f"node {node.node} had {node.rss_max_bytes / 1e6:,.0f} MB"
        stage.require(node.rss_max_bytes < RSS_MAX_BYTES, size)


def repeated(stage: Stage) -> None:
    entries = stage.size(99_990, 30_000)  # a request has at most 100,000 array elements
    stage.create("repeated", 1)
    stage.produce_everywhere("repeated", encode_batch([Record(0, 0, None, b"x" * 100)]))
    (leader,) = stage.leaders("repeated")
    body = _body("repeated", [FetchPartition(0, 0, 1)] * entries, max_bytes=1)
    connection = Connection(stage.address(leader))
    with stage.watched(f"a fetch that names a partition {entries:,} times ({len(body):,} bytes)"):
        connection.send(FETCH, 12, body)
        stage.note(f"answered with {len(connection.receive(FETCH, 12)):,} bytes")
    connection.close()


def _body(topic: str, partitions: list[FetchPartition], *, max_bytes: int) -> bytes:
    wanted = [FetchTopic(topic, None, partitions)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=wanted, max_bytes=max_bytes)
    return b"".join(fetch.encode_request(request, 12))

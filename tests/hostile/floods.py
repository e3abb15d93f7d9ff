"""Floods against a listener with TLS, while administrators use another, reserved listener.

The floods are idle and silent connections, incomplete handshakes, requests sent byte by byte, and
unread fetches of 55 MB. The flooded broker may not take more than 300 MB, and no broker may be
fenced. A new client on the reserved listener must be answered within a second.
"""

import argparse
import contextlib
import os
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from oncelog import Cluster
from oncelog.deploy.inspect.cluster_watch import FENCED
from oncelog.wire.messages import fetch, produce
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from .doors import HELLO, HOST, Door, Watch, ask, cluster_in, frame_of

RSS_MAX_BYTES, LATE_S = 300_000_000, 1.0
PLACES = 2_000  # the default of max.connections
TOPIC, BATCHES, BATCH_BYTES, FETCH_BYTES = "large", 60, 1_000_000, 55_000_000
Sockets = list[socket.socket]
Flood = Callable[["Stage"], Iterator[socket.socket]]


class Stage:
    """The cluster, its flooded and its reserved listener, and the sizes of the floods."""

    def __init__(self, cluster: Cluster, folder: Path, part: float, seconds: float) -> None:
        """Write the records to fetch. A flood opens the fraction `part` of its connections."""
        self.cluster, self.part, self.seconds = cluster, part, seconds
        self.fill()
        self.node_id = cluster.leader(TOPIC, 0)
        doors = {door.name: door for door in Door.all_of(cluster, self.node_id, folder)}
        self.reserved, self.flooded = doors["plain"], doors["ssl"]

    def count(self, whole: int) -> int:
        return max(1, int(whole * self.part))

    def fill(self) -> None:
        """Write the 60 MB of records that the flood `unread` fetches."""
        self.cluster.ask(lambda admin: admin.create_topic(TOPIC, partitions=1))
        batch = encode_batch(
            [Record(0, time.time_ns() // 1_000_000, None, os.urandom(BATCH_BYTES))]
        )
        topic = ProduceTopic(TOPIC, None, [ProducePartition(0, batch)])
        body = b"".join(produce.encode_request(ProduceRequest(None, -1, 30_000, [topic]), 9))
        leader = self.cluster.file.entry(self.cluster.leader(TOPIC, 0))
        with contextlib.closing(socket.create_connection((leader.host, leader.port))) as taken:
            for _ in range(BATCHES):
                ask(taken, frame_of(0, 9, body))

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.flooded.port), 30)

    def rss_bytes(self) -> int:
        (status,) = (each for each in self.cluster.status() if each.node_id == self.node_id)
        return status.rss_bytes


def connections(stage: Stage) -> Iterator[socket.socket]:
    """Open 3,000 connections that send one request and begin a second one."""
    for _ in range(stage.count(3_000)):
        with contextlib.suppress(OSError):
            taken = stage.flooded.open()
            taken.sendall(HELLO + HELLO[:7])
            yield taken


def silent(stage: Stage) -> Iterator[socket.socket]:
    """Open 2,000 connections that send nothing."""
    for _ in range(stage.count(2_000)):
        with contextlib.suppress(OSError):
            yield stage.connect()


def handshakes(stage: Stage) -> Iterator[socket.socket]:
    """Open 500 connections that send a ClientHello, half of them only a part, and then nothing."""
    for number in range(stage.count(500)):
        outgoing = ssl.MemoryBIO()
        assert stage.flooded.tls is not None
        peer = stage.flooded.tls.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST)
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.do_handshake()
        hello = outgoing.read()
        with contextlib.suppress(OSError):
            taken = stage.connect()
            taken.sendall(hello if number % 2 else hello[:-9])
            yield taken


def slow(stage: Stage) -> Iterator[socket.socket]:
    """Open 200 connections, each of which sends one byte every half second."""
    dripping: Sockets = []
    for _ in range(stage.count(200)):
        with contextlib.suppress(OSError):
            dripping.append(stage.flooded.open())
            yield dripping[-1]
    end_s = time.monotonic() + stage.seconds
    while time.monotonic() < end_s:
        for taken in dripping:
            with contextlib.suppress(OSError):
                taken.sendall(b"\0")
        time.sleep(0.5)


def unread(stage: Stage) -> Iterator[socket.socket]:
    """Send a fetch of 55 MB on each of 40 connections, and read none of the answers."""
    topics = [FetchTopic(TOPIC, None, [FetchPartition(0, 0, FETCH_BYTES)])]
    asked = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=FETCH_BYTES, topics=topics)
    frame = frame_of(1, 12, b"".join(fetch.encode_request(asked, 12)))
    for _ in range(stage.count(40)):
        with contextlib.suppress(OSError):
            taken = stage.flooded.open()
            taken.sendall(frame)
            yield taken


FLOODS: tuple[Flood, ...] = (connections, silent, handshakes, slow, unread)


def flood(
    stage: Stage, what: Callable[[Stage], Iterator[socket.socket]], late_s: float
) -> list[str]:
    """Run one flood for its duration, and return a sentence for each problem."""
    held: Sockets = []
    largest_bytes, over = 0, threading.Event()

    def weigh() -> None:
        nonlocal largest_bytes
        while not over.wait(0.2):
            largest_bytes = max(largest_bytes, stage.rss_bytes())

    weighing = threading.Thread(target=weigh, daemon=True)
    weighing.start()
    with Watch([stage.reserved]) as watch:
        held.extend(what(stage))
        time.sleep(stage.seconds)
    over.set()
    weighing.join()
    for taken in held:
        taken.close()
    print(
        f"{what.__name__}: {len(held):,} held; latest ApiVersions on the reserved listener "
        f"{watch.latest_s * 1000:,.0f} ms; {largest_bytes / 1e6:,.0f} MB",
        flush=True,
    )
    wrong = [f"{what.__name__}: no answer: {lost}" for lost in watch.late[0].lost[:3]]
    if watch.latest_s > late_s:
        wrong.append(f"{what.__name__}: an answer after {watch.latest_s:.2f} s")
    if largest_bytes > RSS_MAX_BYTES:
        wrong.append(f"{what.__name__}: the broker took {largest_bytes / 1e6:,.0f} MB")
    return wrong


def floods(part: float, seconds: float, *, late_s: float = LATE_S) -> list[str]:
    """Run all floods one after the other on a cluster of three brokers, and return the problems."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = {
        "inter.broker.listener.name": "PLAINTEXT",
        "max.connections": int(PLACES * part),
    }
    with TemporaryDirectory() as folder, cluster_in(Path(folder), 3, **config) as cluster:
        stage, wrong = Stage(cluster, Path(folder), part, seconds), []
        for what in FLOODS:
            wrong += flood(stage, what, late_s)
        for status in cluster.status():
            if status.state != "running":
                wrong.append(f"broker {status.node_id} has died")
            log = cluster.node(status.node_id).log.read_text(errors="replace")
            wrong += [f"fenced: broker {node_id}" for node_id in FENCED.findall(log)]
            if "Traceback" in log:
                wrong.append(log[log.index("Traceback") - 300 :][:3_000])
        return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the floods, and return 0 if the brokers survived them, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.floods", description=__doc__)
    parser.add_argument(
        "--seconds", metavar="S", type=float, default=15.0, help="seconds of each flood"
    )
    parser.add_argument(
        "--part",
        metavar="P",
        type=float,
        default=1.0,
        help="fraction of each flood's connections that is opened",
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wrong = floods(options.part, options.seconds)
    print("\n".join(wrong))
    print(f"{'RED' if wrong else 'ok'}: {len(wrong)} lines of what is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

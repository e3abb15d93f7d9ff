"""The least CPU that an acknowledged GB costs brokers on this machine, from elementary steps.

A batch is received from the client and its checksum is verified. Each replica writes the batch into
the page cache. The batch is sent to each follower, and received there. The protocol, and the
interpreter's work between two system calls, are not counted. The steps use the kernel and the CRC
of the brokers, in pieces as large as the batches.
"""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from crc32c import crc32c

STEP_BYTES = 256 << 20  # handled by each step, in at most PIECES_MAX pieces
PIECES_MAX = 1 << 15
PIECE_BYTES_MAX = 1 << 20
GB = 1e9


@dataclass(frozen=True, slots=True)
class Floor:
    """The CPU seconds of each elementary step for a GB."""

    batch_bytes: int
    receive: float  # from a client, TCP on the loopback
    checksum: float
    write: float  # into the page cache
    link: float  # between two brokers: sent and received, a Unix socket

    def cpu_s_per_gb(self, replication_factor: int) -> float:
        """Return the CPU seconds of the steps on all brokers together for each acknowledged GB."""
        return (
            self.receive
            + self.checksum
            + self.write * replication_factor
            + self.link * (replication_factor - 1)
        )


def measure_floor(batch_bytes: int) -> Floor:
    """Measure the elementary steps, which takes a second or two.

    Raises OSError if a socket or file cannot be created.
    """
    piece = os.urandom(max(1, min(batch_bytes, PIECE_BYTES_MAX)))
    rounds = min(PIECES_MAX, STEP_BYTES // len(piece))

    def checksum() -> None:
        for _ in range(rounds):
            crc32c(piece)

    def write() -> None:
        with tempfile.TemporaryFile() as file:
            for _ in range(rounds):
                os.write(file.fileno(), piece)

    write()  # memory touched for the first time costs more than brokers pay
    handled_bytes = rounds * len(piece)
    _, receive_s = _through(*_tcp_pair(), piece, rounds)
    return Floor(
        batch_bytes,
        receive=receive_s / handled_bytes * GB,
        checksum=_cpu_s(checksum) / handled_bytes * GB,
        write=_cpu_s(write) / handled_bytes * GB,
        link=sum(_through(*socket.socketpair(), piece, rounds)) / handled_bytes * GB,
    )


def _cpu_s(work: Callable[[], None]) -> float:
    """Return the CPU seconds that this thread spends in `work`."""
    begun_s = time.thread_time()
    work()
    return time.thread_time() - begun_s


def _through(
    sender: socket.socket, receiver: socket.socket, piece: bytes, rounds: int
) -> tuple[float, float]:
    """Send `piece` through a pair of sockets `rounds` times.

    Return the CPU seconds of the sender and of the receiver. Each has a thread of its own, since
    socket calls release the GIL.
    """
    sent_s: list[float] = []

    def send() -> None:
        for _ in range(rounds):
            sender.sendall(piece)
        sender.shutdown(socket.SHUT_WR)

    def receive() -> None:
        room = memoryview(bytearray(PIECE_BYTES_MAX))
        while receiver.recv_into(room):
            pass

    with closing(sender), closing(receiver):
        sending = threading.Thread(target=lambda: sent_s.append(_cpu_s(send)), daemon=True)
        sending.start()
        received_s = _cpu_s(receive)
        sending.join()
    return sent_s[0], received_s


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    return sender, receiver

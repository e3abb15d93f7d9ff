"""The environment of a broker on its machine, set at the composition root.

The defaults are the real threads, links, clocks, random numbers, and process exit. The simulator
replaces these. Its other replacements are in docs/simulation.md.
"""

import os
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ..coordinator.raft.engine import end_process
from ..coordinator.raft.settings import RaftSettings
from ..replication.peer.transport import PeerTransport
from . import linux
from .clock import Clock, SystemClock

KEEPALIVE_S_MAX = 32_767  # of Linux


def machine_boot_id() -> str:
    """Return the boot id of the machine, or a new random id if the system has no boot id."""
    return linux.boot_id() or f"unknown-{os.urandom(8).hex()}"


def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Return a bound, listening, non-blocking socket, or raise OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    chosen = next((entry for entry in address if entry[0] == family), address[0])
    listener = socket.socket(chosen[0], socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(chosen[4])
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def end_lost_connections(listener: socket.socket, after_s: int) -> None:
    """Let the kernel end accepted connections whose client has been unreachable for `after_s`.

    On Linux, accepted sockets inherit these options. Half of the time passes without a packet, and
    in the other half the client does not answer ten probes.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = ("TCP_KEEPIDLE", after_s // 2), ("TCP_KEEPINTVL", after_s // 20), ("TCP_KEEPCNT", 10)
    for name, value in wanted:
        option = getattr(socket, name, None)
        if option is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, min(max(1, value), KEEPALIVE_S_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The environment of a broker.

    `executor` creates a thread pool from the number of threads and the prefix of their names.
    """

    clock: Clock = field(default_factory=SystemClock)
    boot_id: Callable[[], str] = machine_boot_id
    rng: random.Random = field(default_factory=random.Random)
    random_bytes: Callable[[int], bytes] = os.urandom
    executor: Callable[[int, str], Executor] = ThreadPoolExecutor
    slice_clock: Callable[[], float] = time.perf_counter  # the clock of `SlicedWork`, in seconds
    links: Callable[..., Any] = PeerTransport
    listen: Callable[[str, int, int], Any] = listening_socket
    raft: RaftSettings = field(default_factory=RaftSettings)
    on_fatal: Callable[[BaseException], None] = end_process

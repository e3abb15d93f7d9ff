"""Free ports, and the holder of a taken port.

Free ports are drawn from below the range that the kernel uses for outgoing connections. A node that
was killed must find its port again after the restart. A client that repeatedly connects to a dead
port of the outgoing range would sooner or later connect to itself.
"""

import errno
import random
import socket

import psutil

from ...node.linux import first_outgoing_port
from .failure import Failure

LOWEST_PORT, HIGHEST_PORT = 15_000, 65_535
DEFAULT_FIRST_EPHEMERAL_PORT = 32_768  # Linux; read from the kernel where possible


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a node could listen on this port now."""
    return _refusal(port, host) is None


def _refusal(port: int, host: str = "127.0.0.1") -> OSError | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the node does
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as problem:
            return problem
    return None


def is_refused(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a connection is refused, because no process listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect((host, port))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def free_ports(count: int) -> list[int]:
    """Return `count` ports without a listener at this moment."""
    highest = _first_ephemeral_port() - 1
    lowest = LOWEST_PORT if highest - LOWEST_PORT > 1000 else 1024
    found: list[int] = []
    for _ in range(5_000):
        port = random.randint(lowest, highest)
        if port not in found and is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise Failure(f"No {count} free ports were found between {lowest} and {highest}.")


def holder_of(port: int) -> tuple[str, bool]:
    """Return words for a port's holder, and whether a process listens on the port.

    A listener is named as `python3 (pid 77)`. Without a listener, the words name the outgoing
    connection that uses the port, as far as this user may see it.
    """
    try:
        found = [c for c in psutil.net_connections(kind="tcp") if c.laddr and c.laddr.port == port]
        listening = [c for c in found if c.status == psutil.CONN_LISTEN]
        pids = [c.pid for c in listening or found if c.pid is not None]
        name = f"{psutil.Process(pids[0]).name()} (pid {pids[0]})" if pids else "another process"
    except psutil.Error:
        return "another process", True
    if listening or not found:
        return name, True
    if all(c.status == psutil.CONN_TIME_WAIT for c in found):
        return "a client's connection that has ended; the kernel keeps its port for a minute", False
    return f"an outgoing connection of {name}", False


def require_free(ports: list[int]) -> None:
    """Raise Failure, which names the holder, when one of these ports is taken or invalid."""
    for port in ports:
        if not 0 < port <= HIGHEST_PORT:
            raise Failure(f"{port} is not a port: --port and what follows it go up to 65535.")
        if (refusal := _refusal(port)) is not None:
            if refusal.errno in (errno.EACCES, errno.EPERM):
                raise Failure(
                    f"Port {port} may not be used by this user: low ports are the system's. Choose "
                    "one from 1024 on with --port, or leave --port out to get free ones."
                )
            holder, is_listening = holder_of(port)
            advice = "Stop it, choose others"
            if not is_listening:
                advice = (
                    f"The kernel gives ports from {_first_ephemeral_port()} on to outgoing "
                    "connections: choose lower ones"
                )
            raise Failure(
                f"Port {port} is taken by {holder}. {advice} with --port, "
                "or leave --port out to get free ones."
            )


def _first_ephemeral_port() -> int:
    return first_outgoing_port() or DEFAULT_FIRST_EPHEMERAL_PORT

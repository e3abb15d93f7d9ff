"""The sockets of one broker, ZeroMQ's ROUTER and DEALERs, and a listening socket for streams."""

import socket
from dataclasses import dataclass
from pathlib import Path

import zmq

from .address import PeerSocketError, routing_id, socket_path

RECONNECT_INTERVAL_MS = 15
RECONNECT_INTERVAL_MAX_MS = 100  # limits the attempts to connect to a dead peer
QUEUE_MESSAGES = 4096

Socket = zmq.Socket[bytes]


@dataclass(frozen=True, slots=True)
class PeerSockets:
    """A factory of sockets, which the caller closes."""

    context: "zmq.Context[Socket]"
    directory: Path
    node_id: int
    max_message_bytes: int

    def listen(self) -> Socket:
        """Open the socket that peers connect to. Raises PeerSocketError if it is already in use."""
        path = socket_path(self.directory, "control", self.node_id)
        if is_served(path):  # bind replaces the file of a killed broker
            raise PeerSocketError(f"another process serves {path}: does this node run already?")
        router = self._open(zmq.ROUTER)
        # A restarted peer gets its routing id immediately.
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a reply to an unknown peer raises an error
        router.bind(f"ipc://{path}")
        return router

    def dial(self, peer: int, events: int) -> tuple[Socket, Socket]:
        """Return a socket that connects to a peer, and the socket's monitor for `events`.

        The socket connects again after each loss.
        """
        path = socket_path(self.directory, "control", peer)
        dealer = self._open(zmq.DEALER)
        dealer.setsockopt(zmq.ROUTING_ID, routing_id(self.node_id))
        # Messages are not queued for an absent peer, and messages queued for a broken connection
        # are lost with it, so that no old request reaches the peer's next incarnation.
        dealer.setsockopt(zmq.IMMEDIATE, 1)
        dealer.setsockopt(zmq.RECONNECT_IVL, RECONNECT_INTERVAL_MS)
        dealer.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_INTERVAL_MAX_MS)
        monitor = dealer.get_monitor_socket(events)
        dealer.connect(f"ipc://{path}")
        return dealer, monitor

    def _open(self, kind: int) -> Socket:
        sock = self.context.socket(kind)
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.SNDHWM, QUEUE_MESSAGES)
        sock.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
        sock.setsockopt(zmq.MAXMSGSIZE, self.max_message_bytes)
        return sock


def listening_socket(address: Path | tuple[str, int]) -> socket.socket:
    """Listen at a Unix socket, or at host and port.

    Raises OSError, or PeerSocketError if another process uses the Unix socket.
    """
    if isinstance(address, Path):
        if is_served(address):  # the file of a killed broker is replaced
            raise PeerSocketError(f"another process serves {address}: does this node run already?")
        address.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(address))
            listener.listen()
        except OSError:
            listener.close()
            raise
    else:
        listener = socket.create_server(address)
    listener.setblocking(False)
    return listener


def is_served(path: Path) -> bool:
    """Return whether a process listens on this Unix socket.

    The socket's file alone proves nothing, because it remains after the process has ended.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # a full backlog, or a file of another program
            return path.exists()
        return True

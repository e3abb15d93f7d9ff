"""A cluster with a listener of each kind, connections to each, and latencies of their answers."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncelog import Cluster
from oncelog.deploy.cluster.node_process import NodeProcess
from oncelog.deploy.cluster.ports import free_ports
from oncelog.deploy.cluster.private import write_private
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import control

from ..node.listener.tls.certificates import Certificates

HOST, USER, PASSWORD = "127.0.0.1", "alice", "a password of alice"
PROTOCOLS = {"plain": "PLAINTEXT", "ssl": "SSL", "sasl_ssl": "SASL_SSL"}
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
ANSWER_TIMEOUT_S = 60.0


def cluster_in(folder: Path, nodes: int, **config: Any) -> Cluster:
    """Return a cluster with all listeners, not started, with certificates in `folder`."""
    certificates = Certificates(folder)
    jaas = f'org.apache.kafka.PlainLoginModule required user_{USER}="{PASSWORD}";'

    class ListeningNode(NodeProcess):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.ports = dict(zip(PROTOCOLS, (self.entry.port, *free_ports(2)), strict=True))

        def spawn(self) -> None:
            listeners = ",".join(f"{PROTOCOLS[n]}://{HOST}:{p}" for n, p in self.ports.items())
            settings = {
                "listeners": listeners,
                "advertised.listeners": listeners,
                "ssl.keystore.location": certificates.folder / "broker.pem",
                "ssl.truststore.location": certificates.folder / "ca.pem",
                "listener.name.ssl.ssl.client.auth": "requested",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "true",
                "super.users": "User:ANONYMOUS",
            }
            lines = self.properties.read_text().splitlines()
            kept = [line for line in lines if line.partition("=")[0] not in settings]
            kept += [f"{key}={value}" for key, value in settings.items()]
            write_private(self.properties, "\n".join(kept) + "\n")
            super().spawn()

    class ListeningCluster(Cluster):
        node_type = ListeningNode

    return ListeningCluster(nodes, config=config)


@dataclass(frozen=True)
class Door:
    """One listener of one node, and the login that a client needs on it."""

    name: str
    node_id: int
    port: int
    tls: ssl.SSLContext | None

    @classmethod
    def all_of(cls, cluster: Cluster, node_id: int, folder: Path) -> "list[Door]":
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        node: Any = cluster.node(node_id)
        return [
            cls(name, node_id, port, None if name == "plain" else context)
            for name, port in node.ports.items()
        ]

    @property
    def login(self) -> list[bytes]:
        """Return the request frames of a login, an empty list for a listener without SASL."""
        if self.name != "sasl_ssl":
            return []
        return [
            frame_of(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
            frame_of(SASL_AUTHENTICATE, 0, {"auth_bytes": f"\0{USER}\0{PASSWORD}".encode()}),
        ]

    def open(self) -> socket.socket:
        """Return a new connected socket, after the TLS handshake and the login."""
        taken = socket.create_connection((HOST, self.port), ANSWER_TIMEOUT_S)
        if self.tls is not None:
            taken = self.tls.wrap_socket(taken, server_hostname=HOST)
        try:
            for frame in self.login:
                ask(taken, frame)
        except BaseException:  # the broker closes it, or does not answer in time
            taken.close()
            raise
        return taken

    async def streams(self, *, is_plain: bool = False) -> tuple[Any, Any]:
        """Return asyncio's reader and writer of a new connection without a login.

        With `is_plain` the connection uses no TLS, even to a listener with TLS.
        """
        context = None if is_plain else self.tls
        return await asyncio.open_connection(HOST, self.port, ssl=context)


def frame_of(key: int, version: int, values: Any) -> bytes:
    """Return a request frame with its length. `values` are the fields or the bytes of its body."""
    request = encode_request_header(key, version, 1, "h")
    request += values if type(values) is bytes else control.encode_request(key, version, values)
    return len(request).to_bytes(4, "big") + request


HELLO = frame_of(API_VERSIONS, 0, {})


def ask(taken: socket.socket, frame: bytes) -> bytes:
    """Send a request frame, and return the answer without its length field."""
    taken.sendall(frame)
    return _exactly(taken, int.from_bytes(_exactly(taken, 4), "big"))


def _exactly(taken: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (more := taken.recv(count - len(data))):
            raise ConnectionError("the broker hung up")
        data += more
    return data


@dataclass
class Lateness:
    """The latencies of the slowest ApiVersions answers of one listener.

    `old_s` was measured on an open connection. `new_s` includes the time of connecting.
    """

    old_s: float = 0.0
    new_s: float = 0.0
    lost: list[str] = field(default_factory=list)


class Watch(threading.Thread):
    """A thread that sends ApiVersions to all listeners, on old and new connections."""

    EVERY_S, NEW_EVERY = 0.05, 4

    def __init__(self, doors: Sequence[Door]) -> None:
        super().__init__(daemon=True)
        self.doors, self.late = doors, [Lateness() for _ in doors]
        self._over = threading.Event()

    def __enter__(self) -> "Watch":
        self._olds = [door.open() for door in self.doors]
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        for old in self._olds:
            old.close()

    @property
    def latest_s(self) -> float:
        return max(max(late.old_s, late.new_s) for late in self.late)

    def run(self) -> None:
        turn = 0
        while not self._over.wait(self.EVERY_S):
            turn += 1
            for number, (door, late) in enumerate(zip(self.doors, self.late, strict=True)):
                try:
                    begun_s = time.monotonic()
                    ask(self._olds[number], HELLO)
                    late.old_s = max(late.old_s, time.monotonic() - begun_s)
                    if turn % self.NEW_EVERY == 0:
                        begun_s = time.monotonic()
                        with contextlib.closing(door.open()) as new:
                            ask(new, HELLO)
                        late.new_s = max(late.new_s, time.monotonic() - begun_s)
                except OSError as problem:
                    late.lost.append(repr(problem))
                    with contextlib.suppress(OSError):
                        self._olds[number] = door.open()

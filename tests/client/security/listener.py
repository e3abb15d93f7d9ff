"""A strict listener for authentication requests, which records the requests.

The listener serves events that a real Kafka does not produce at a known moment. Examples are
sessions that end after some milliseconds, a user that is deleted during a session, and the order of
requests on the wire.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from select import select
from typing import Any

from oncelog.wire.framing import decode_request_header, encode_response_header
from oncelog.wire.messages import control

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, METADATA = 17, 18, 36, 3


class TlsFront:
    """A proxy that terminates TLS in threads, and sends OpenSSL's alerts as brokers do.

    asyncio's servers close the connection before their alert is sent.
    """

    def __init__(self, context: ssl.SSLContext, target: int) -> None:
        self._context, self._target = context, target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _accept(self) -> None:
        threads: list[threading.Thread] = []
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                threads.append(threading.Thread(target=self._serve, args=(taken,), daemon=True))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _serve(self, taken: socket.socket) -> None:
        taken.settimeout(10)
        with taken, contextlib.suppress(OSError):
            self._shake_hands(taken)

    def _shake_hands(self, taken: socket.socket) -> None:
        raw = taken.dup()  # wrapping takes the socket away
        with raw, contextlib.closing(self._wrapped(raw, taken)) as near:
            far = socket.create_connection(("127.0.0.1", self._target), 10)
            with far:
                while True:
                    ready = [near] if near.pending() else select([near, far], [], [], 10)[0]
                    for source, sink in ((near, far), (far, near)):
                        if source in ready:
                            data = source.recv(1 << 16)
                            if not data:
                                return
                            sink.sendall(data)

    def _wrapped(self, raw: socket.socket, taken: socket.socket) -> ssl.SSLSocket:
        try:
            return self._context.wrap_socket(taken, server_side=True)
        except ssl.SSLError:
            raw.shutdown(socket.SHUT_WR)  # unread data would lose the alert
            raw.settimeout(1)
            while raw.recv(1 << 16):
                pass
            raise


class Listener:
    """A listener with SASL/PLAIN. `asked` has the API keys of the requests, by connection."""

    def __init__(self, *, lifetime_ms: int = 0, has_sasl: bool = True) -> None:
        self.users = {"alice": "geheim"}
        self.lifetime_ms, self.has_sasl = lifetime_ms, has_sasl
        self.asked: list[list[int]] = []
        self.hold = asyncio.Event()  # while clear, SaslAuthenticate is not answered
        self.hold.set()
        self.host, self.port = "127.0.0.1", 0
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def running(self, context: ssl.SSLContext | None = None) -> AsyncIterator["Listener"]:
        server = await asyncio.start_server(self._serve, self.host, 0)
        self.port = server.sockets[0].getsockname()[1]
        front = None if context is None else TlsFront(context, self.port)
        self.port = self.port if front is None else front.port
        try:
            yield self
        finally:
            server.close()
            if front is not None:
                await asyncio.get_running_loop().run_in_executor(None, front.close)
            for writer in self._writers:
                writer.close()
            await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: list[int] = []
        self.asked.append(asked)
        self._writers.append(writer)
        is_authenticated, is_in_exchange = not self.has_sasl, False
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if not 0 < size < 1 << 20:
                    return  # as Kafka does with bytes that are no frame
                frame = memoryview(bytearray(await reader.readexactly(size)))
                header = decode_request_header(frame)
                key, version = header.api_key, header.api_version
                asked.append(key)
                request = control.decode_request(key, version, frame[header.body_offset :])
                if key == SASL_HANDSHAKE:
                    is_in_exchange = True
                elif key == SASL_AUTHENTICATE:
                    await self.hold.wait()
                    is_authenticated = self._is_known(bytes(request.auth_bytes))
                    is_in_exchange = False
                elif key != API_VERSIONS and (is_in_exchange or not is_authenticated):
                    return  # as Kafka does
                body = control.encode_response(
                    key, version, self._answer(key, request, is_authenticated)
                )
                answer = encode_response_header(key, version, header.correlation_id) + body
                writer.write(len(answer).to_bytes(4, "big") + answer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    def _judge(self, mechanism: str) -> int:
        if not self.has_sasl:
            return 34
        return 0 if mechanism == "PLAIN" else 33

    def _is_known(self, token: bytes) -> bool:
        _, name, password = token.decode().split("\0")
        return self.users.get(name) == password

    def _answer(self, key: int, request: Any, is_known: bool) -> dict[str, Any]:
        if key == API_VERSIONS:
            served = {SASL_HANDSHAKE: (0, 1), API_VERSIONS: (0, 3), SASL_AUTHENTICATE: (0, 2),
                      METADATA: (0, 12)}  # fmt: skip
            return {
                "error_code": 0,
                "api_keys": [
                    {"api_key": k, "min_version": a, "max_version": b}
                    for k, (a, b) in served.items()
                ],
            }
        if key == SASL_HANDSHAKE:
            return {"error_code": self._judge(request.mechanism), "mechanisms": ["PLAIN"]}
        if key == SASL_AUTHENTICATE:
            return {
                "error_code": 0 if is_known else 58,
                "error_message": None if is_known else "Invalid username or password",
                "auth_bytes": b"",
                "session_lifetime": self.lifetime_ms,
            }
        brokers = [{"node_id": 1, "host": self.host, "port": self.port, "rack": None}]
        return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": []}

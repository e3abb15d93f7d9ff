"""Sends requests to a broker one after another. Any reaction of the broker is an outcome.

A broker may close the connection, stay silent, or send garbage. Each of these is an outcome, and
the next request uses a new connection. Everything has a limit, such as the wait for an answer and
the answer's size. After too many failed connections or unanswered requests, the survey stops.
"""

import socket
import time
from collections.abc import Mapping
from typing import Any

from ...deploy.faults.protocol_proxy.bodies import decode_answer_body
from ...deploy.inspect.secured_socket import LoginRefused, SecuredConnector
from ...wire.framing import encode_request_header, frame_response
from ...wire.messages import control, fetch, produce
from ...wire.messages.apis import APIS
from ...wire.primitives import MalformedFrame
from .outcomes import CLOSED, SILENT, AskOutcome, not_asked, outcome_of

ANSWER_S = 5.0
ANSWER_BYTES_MAX = 64 << 20
SILENCES_MAX = 3
FAILED_CONNECTIONS_MAX = 5
CLIENT_ID = "oncelog-conformance"
GARBAGE = AskOutcome("garbage")
_BY_HAND: Mapping[int, Any] = {0: produce, 1: fetch}


class AskedBroker:
    """A connection for single requests to one broker. The caller closes it."""

    def __init__(
        self, config: Mapping[str, Any], host: str, port: int, *, answer_s: float = ANSWER_S
    ) -> None:
        self.host, self.port = host, port
        self._connector = SecuredConnector(config, host, port)
        self._answer_s = answer_s
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._silences = self._failures = 0
        self._over = ""

    @property
    def stopped(self) -> str:
        """The reason why the survey stopped early, or "" while it continues."""
        return self._over

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def has_login(self) -> bool:
        return self._connector.has_login

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, api_key: int, version: int, values: Any) -> tuple[AskOutcome, Any]:
        """Send a request. Return its outcome, and the decoded answer or None."""
        if self._over:
            return not_asked(self._over), None
        try:
            frame = self._exchange(api_key, version, _body(api_key, version, values))
        except TimeoutError:
            self.close()
            self._silences += 1
            if self._silences == SILENCES_MAX:
                self._over = f"{SILENCES_MAX} requests before it got no answer"
            return SILENT, None
        except LoginRefused as refusal:
            self._over = str(refusal)
            return not_asked(self._over), None
        except MalformedFrame:
            self.close()
            return GARBAGE, None
        except (OSError, EOFError):
            self.close()
            return (not_asked(self._over), None) if self._over else (CLOSED, None)
        try:
            body = decode_answer_body(api_key, version, memoryview(frame))
            return outcome_of(body), body
        except MalformedFrame:
            return GARBAGE, None

    def _exchange(self, api_key: int, version: int, body: bytes) -> bytes:
        deadline_s = time.monotonic() + self._answer_s
        taken = self._connected()
        self._correlation_id += 1
        header = encode_request_header(api_key, version, self._correlation_id, CLIENT_ID)
        _limit(taken, deadline_s)
        taken.sendall(b"".join(frame_response(header, [body])))
        size = int.from_bytes(_received(taken, 4, deadline_s), "big")
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise MalformedFrame(f"an answer of {size} bytes")
        frame = _received(taken, size, deadline_s)
        if int.from_bytes(frame[:4], "big") != self._correlation_id:
            raise MalformedFrame("it answered a request that was not sent")
        return frame

    def _connected(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = self._connector.connect()
            except LoginRefused:
                raise
            except OSError as problem:
                self._failures += 1
                if self._failures == FAILED_CONNECTIONS_MAX:
                    self._over = f"it accepts no connection: {problem}"
                raise ConnectionError(str(problem)) from None
        return self._socket


def _body(api_key: int, version: int, values: Any) -> bytes:
    if api_key in _BY_HAND:
        return b"".join(_BY_HAND[api_key].encode_request(values, version))
    return control.encode_request(api_key, version, values)


def _limit(taken: socket.socket, deadline_s: float) -> None:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    taken.settimeout(left_s)


def _received(taken: socket.socket, count: int, deadline_s: float) -> bytes:
    received = bytearray()
    while len(received) < count:
        _limit(taken, deadline_s)
        data = taken.recv(min(count - len(received), 1 << 20))
        if not data:
            raise EOFError
        received += data
    return bytes(received)


def is_encodable(api_key: int, version: int) -> bool:
    """Return whether this client can encode a request of this version."""
    api = APIS.get(api_key)
    return api is not None and api.oldest <= version <= api.newest

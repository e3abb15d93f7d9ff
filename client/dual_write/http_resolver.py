"""An HTTP endpoint that knows the outcome of a transaction. Its answers are not trusted.

An answer must be short, arrive completely within the timeout, and come from the given address. A
redirection is an error.
"""

import asyncio
import base64
import contextlib
import json
import socket
import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, cast
from urllib.parse import unquote, urlencode, urlsplit

from ...wire.errors import InvalidConfig
from .steps import DecidedOutcome, TransactionKey

ANSWER_TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 65_536
NOBODYS = TransactionKey("oncelog.dual.check-back." + 24 * "0", 0, 0)
WORDS = {"commit": DecidedOutcome.COMMITTED, "abort": DecidedOutcome.ABORTED, "unknown": None}


class HttpResolver:
    """A resolver that sends one GET request for each question.

    The request is `URL?transactional_id=...&producer_id=...&producer_epoch=...`. The answer is
    JSON, `{"outcome": "commit" | "abort" | "unknown"}`.
    """

    def __init__(self, url: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Parse a URL of http:// or https://, with USER:PASSWORD@ for basic authentication."""
        parts = urlsplit(url)
        try:
            self._port = parts.port
        except ValueError:
            raise InvalidConfig("the endpoint's port is no number from 0 to 65535") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConfig("give the http:// or https:// address of an endpoint")
        self._parts, self._timeout_s = parts, timeout_s
        port = f":{self._port}" if self._port else ""
        self.shown = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"  # without secrets
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"

    async def resolve(self, key: TransactionKey) -> DecidedOutcome | None:
        """Return the endpoint's outcome, or raise OSError or ValueError without a valid answer."""
        return await asyncio.to_thread(self._ask, key)

    async def check(self) -> str:
        """Ask for the outcome of a transaction that does not exist.

        Return an empty string, or raise InvalidConfig without a valid answer.
        """
        try:
            await self.resolve(NOBODYS)
        except (OSError, ValueError) as problem:
            raise InvalidConfig(f"the endpoint cannot answer: {problem}") from problem
        return ""

    async def close(self) -> None: ...

    def _ask(self, key: TransactionKey) -> DecidedOutcome | None:
        asked = urlencode(
            {
                "transactional_id": key.transactional_id,
                "producer_id": key.producer_id,
                "producer_epoch": key.producer_epoch,
            }
        )
        query = f"{self._parts.query}&{asked}" if self._parts.query else asked
        return _outcome_of(self._get(f"{self._parts.path or '/'}?{query}"), self.shown)

    def _get(self, path: str) -> bytes:
        is_secure = self._parts.scheme == "https"
        connection_class = HTTPSConnection if is_secure else HTTPConnection
        host = self._parts.hostname or ""
        connection = connection_class(host, self._port, timeout=self._timeout_s)
        is_late = threading.Event()
        try:
            connection.connect()
            # A socket's timeout covers one read: a server that sends a byte a second never exceeds
            # it.
            alarm = threading.Timer(self._timeout_s, _cut, (connection.sock, is_late))
            alarm.daemon = True
            alarm.start()
            try:
                connection.request("GET", path, headers=self._headers)
                answer = connection.getresponse()
                status, text = answer.status, answer.read(ANSWER_BYTES_MAX + 1)
            finally:
                alarm.cancel()
        except TimeoutError:
            is_late.set()
            status, text = 0, b""
        except (HTTPException, OSError) as problem:
            if not is_late.is_set():
                raise OSError(f"{self.shown}: {problem or type(problem).__name__}") from None
            status, text = 0, b""
        finally:
            connection.close()
        if is_late.is_set():
            raise TimeoutError(f"{self.shown} did not answer within {self._timeout_s:g} s")
        if status != 200:
            redirected = ", a redirection, which is not followed" * (300 <= status < 400)
            raise OSError(f"{self.shown} answered {status}{redirected}")
        return text


def _cut(connection: socket.socket, is_late: threading.Event) -> None:
    is_late.set()
    with contextlib.suppress(OSError):  # already closed
        connection.shutdown(socket.SHUT_RDWR)


def _outcome_of(text: bytes, shown: str) -> DecidedOutcome | None:
    wanted = '{"outcome": "commit"}, "abort" or "unknown"'
    if len(text) > ANSWER_BYTES_MAX:
        raise ValueError(
            f"{shown} answered more than {ANSWER_BYTES_MAX:,} bytes; wanted is {wanted}"
        )
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    word = cast(dict[str, Any], found).get("outcome") if isinstance(found, dict) else None
    if not isinstance(word, str) or word not in WORDS:
        raise ValueError(f"{shown} answered {text[:200]!r}; wanted is {wanted}")
    return WORDS[word]

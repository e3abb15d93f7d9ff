"""Requests for unsupported APIs or versions, for the log and `oncelog doctor`.

Their connections are closed, as in Kafka. Most clients then reconnect and repeat the request
forever, without an error in their application. So the broker reports each client once.
"""

import logging

from ...wire.errors import KafkaError
from ...wire.framing import decode_request_header
from ...wire.messages.apis import API_NAMES
from ...wire.printable import printable
from .closing import UnservedRequest

NAMED_MAX = 100  # the limit of clients and APIs, since a client may choose any name
SHOWN_MAX = 10
NAME_CHARACTERS_MAX = 60


class UnservedRequests:
    """The unsupported requests since the start of this process, each described by a sentence."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._named: dict[tuple[tuple[str, str], int, int], str] = {}

    def note(
        self, request: UnservedRequest, software: tuple[str, str], host: str, frame: memoryview
    ) -> None:
        """Log an unsupported request, unless the same software has sent the same request before."""
        asked = (software, request.api_key, request.version)
        if asked in self._named or len(self._named) >= NAMED_MAX:
            return
        name = API_NAMES.get(request.api_key, "unknown")
        sentence = (
            f"{_client(software, frame)} from {host} asks for API {request.api_key} ({name}) "
            f"version {request.version}, which is not served: its connection is closed"
        )
        self._named[asked] = sentence
        self._log.warning("%s", sentence)
        if len(self._named) == NAMED_MAX:
            self._log.warning("further requests for unsupported APIs are not logged")

    @property
    def sentences(self) -> list[str]:
        """The sentences about the first unsupported requests."""
        return list(self._named.values())[:SHOWN_MAX]


def _client(software: tuple[str, str], frame: memoryview) -> str:
    """Return the software from ApiVersions (KIP-511) and the client id of the request."""
    try:
        client_id = decode_request_header(frame).client_id
    except KafkaError:
        client_id = None
    words = " ".join(software) if software[0] != "unknown" else "a client of unknown software"
    if client_id:
        words += f" (client id {client_id[:NAME_CHARACTERS_MAX]})"
    return printable(words)

"""Requests for APIs or versions that are not served, for the log and `oncelog doctor`.

Their connections are closed, as in Kafka. Most clients then reconnect and ask again, for ever and
without an error to their application; so the broker reports each client once.
"""

import logging

from ...wire.errors import KafkaError
from ...wire.framing import decode_request_header
from ...wire.messages.apis import API_NAMES
from ...wire.printable import printable
from .closing import UnservedRequest

NAMED_MAX = 100  # clients and APIs; a client may call itself anything
SHOWN_MAX = 10
NAME_CHARACTERS_MAX = 60


class UnservedRequests:
    """The unserved requests since the start of this process, in sentences."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._named: dict[tuple[tuple[str, str], int, int], str] = {}

    def note(
        self, request: UnservedRequest, software: tuple[str, str], host: str, frame: memoryview
    ) -> None:
        """Log a client's request, unless this software has asked for the same before."""
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
            self._log.warning("no more requests for what is not served are named")

    @property
    def sentences(self) -> list[str]:
        """The sentences on the first of them."""
        return list(self._named.values())[:SHOWN_MAX]


def _client(software: tuple[str, str], frame: memoryview) -> str:
    """Return the software of ApiVersions (KIP-511), and the client id of the request."""
    try:
        client_id = decode_request_header(frame).client_id
    except KafkaError:
        client_id = None
    words = " ".join(software) if software[0] != "unknown" else "a client of unknown software"
    if client_id:
        words += f" (client id {client_id[:NAME_CHARACTERS_MAX]})"
    return printable(words)

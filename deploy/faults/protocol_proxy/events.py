"""The events of a proxy for its listeners, about connections, requests, answers, and faults.

Events of one connection come in order. A listener runs in the proxy's event loop, so it must copy
the data that it needs and return within a few ms. A kept `Request` or `Answer` keeps its frame in
memory.

Times are seconds of `time.monotonic()`. Bodies are decoded at their first use. Bodies are those of
the client and of the broker, without the proxy's changes. Produce and Fetch are those of
`wire/messages/produce.py` and `fetch.py` (records are views, not decoded). Others are messages with
the field names of kio (`wire/messages/requests.pyi`, `responses.pyi`). A malformed body, or a
version without a schema, raises `MalformedFrame`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ....wire.framing import RequestHeader
from .bodies import api_name, decode_answer_body, decode_request_body
from .errors_in_answers import first_error
from .subjects import Subjects, TopicNames, subjects_of


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A client's connection through the proxy.

    instance: the instance to which the address was given (see `ProtocolProxy.address_for`).
    broker_id: the broker behind the address, None if unknown. client_port: the client's port, on
    loopback.
    """

    id: int
    instance: str
    broker_id: int | None
    client_port: int


Connection = ClientConnection  # short among events; brokers have another class Connection


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    connection: Connection
    at_s: float


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection was closed.

    reason: a sentence about the side that closed the connection, and its cause. is_refusal: the
    bytes cannot be decoded here (TLS, malformed frames), or there is no broker.
    """

    connection: Connection
    at_s: float
    reason: str
    is_refusal: bool = False


class ProxiedRequest:
    """A request, before it is forwarded to the broker."""

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        at_s: float,
        topic_names: TopicNames,
    ) -> None:
        self.connection = connection
        self.api_key = header.api_key
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.at_s = at_s
        self.size_bytes = len(frame)
        self.lowered: tuple[str, ...] = ()  # "session_timeout_ms 45000 -> 6000"
        self._frame = frame
        self.body_offset = header.body_offset
        self._topic_names = topic_names

    @property
    def api(self) -> str:
        """Return the API's name, such as `EndTxn`."""
        return api_name(self.api_key)

    @property
    def instance(self) -> str:
        return self.connection.instance

    @cached_property
    def body(self) -> Any:
        """Return the body as the client sent it, or raise MalformedFrame."""
        return decode_request_body(self.api_key, self.version, self._frame, self.body_offset)

    @cached_property
    def subjects(self) -> Subjects:
        """Return the topics, groups and transactional ids of the request.

        Topic ids are looked up in the answers of Metadata.
        """
        return subjects_of(self.api_key, self.body, self._topic_names)

    def __repr__(self) -> str:
        return (
            f"{self.api} v{self.version} of {self.client_id or 'a client without name'}"
            f"{f' ({self.instance})' if self.instance else ''}"
        )


Request = ProxiedRequest


class Answer:
    """The answer to a request, before it is sent to the client.

    is_from_broker: False if a rule created the answer without a broker. fate: "delivered", or
    "lost" if the client does not get it. It is "held" until a rule, which then emits `FaultMade`,
    has released the answer.
    """

    def __init__(
        self, request: Request, frame: memoryview, at_s: float, is_from_broker: bool, fate: str
    ) -> None:
        self.request = request
        self.at_s = at_s
        self.size_bytes = len(frame)
        self.is_from_broker = is_from_broker
        self.fate = fate
        self._frame = frame

    @cached_property
    def body(self) -> Any:
        """Return the body as the broker sent it, or raise MalformedFrame."""
        return decode_answer_body(self.request.api_key, self.request.version, self._frame)

    @cached_property
    def error_code(self) -> int:
        """Return the first error in the answer, 0 for success, or raise MalformedFrame."""
        return first_error(self.body)

    def __repr__(self) -> str:
        return f"answer to {self.request!r}"


@dataclass(frozen=True, slots=True)
class FaultMade:
    """A rule has acted on a request.

    what: text about the action. rule: the Rule, as it was added.
    """

    rule: Any
    request: Request
    at_s: float
    what: str


Event = ConnectionOpened | ConnectionClosed | Request | Answer | FaultMade

"""The state of a connection, and the questions about it that the server asks.

`ConnectionServer` is the server in the form that a connection uses.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ...runtime.turn_share import TurnShare
from ...wire.frame_memory import FrameMemory
from ...wire.framing import Buffer, FrameReceiver
from ..config.broker_config import BrokerConfig
from ..config.listeners import Listener
from ..linux import has_peer_closed, unread_bytes
from .answer_times import AnswerTimes
from .dispatch import Dispatcher
from .memory_budget import MemoryBudget
from .pending_answer import PendingAnswer
from .request_context import RequestContext
from .unserved_requests import UnservedRequests

if TYPE_CHECKING:
    from .sasl.guard import GuardedDispatcher

UNREAD_BYTES = "unread_bytes"  # the extra info of a transport that holds received bytes itself
UNATTENDED_MAX_S = 60.0  # how long a request may wait after its client has sent its last byte
Answer = list[Buffer] | PendingAnswer | None
# The answer; the bytes, the API and the start time of its request.
InFlight = tuple[Answer, int, int, float]
Served_contra = TypeVar("Served_contra", contravariant=True)  # the class of the connections


class ConnectionServer(Protocol[Served_contra]):
    """The server of a connection, with the state that its connections share."""

    dispatcher: Dispatcher
    config: BrokerConfig
    frame_memory: FrameMemory
    budget: MemoryBudget
    loop: asyncio.AbstractEventLoop
    share: TurnShare
    times: AnswerTimes
    unserved: UnservedRequests
    now_s: float
    is_stopping: bool

    def request_bytes_max(self, listener: Listener) -> int: ...
    def admit(self, connection: Served_contra) -> RequestContext | None: ...
    def heard_first(self, connection: Served_contra) -> None: ...
    def client_ended(self, connection: Served_contra) -> None: ...
    def removed(self, connection: Served_contra) -> None: ...
    def note_closed(self, connection: Served_contra, reason: str) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class ConnectionState(asyncio.BufferedProtocol):
    """The state of one connection.

    Times in seconds are those of the server's coarse monotonic clock (`now_s`, accurate to one
    second).
    """

    _server: ConnectionServer[Any]
    listener: Listener
    _receiver: FrameReceiver = field(init=False)
    _transport: asyncio.Transport | None = None
    _frames: deque[memoryview] = field(default_factory=deque[memoryview])
    _in_flight: deque[InFlight] = field(default_factory=deque[InFlight])
    _is_pipelining: bool = False  # True while the requests in flight are produce requests
    _is_advance_due: bool = False
    held_bytes: int = 0  # bytes of unanswered requests, complete or not
    _unframed_bytes: int = 0  # bytes of the incomplete request
    _unframed_before: int = 0  # those that were received before reading resumed
    _unsent_bytes: int = 0
    _untaken_bytes: int = 0  # of its answers, at the last check of a stalled connection
    # Set while the transport gets the buffers.
    _writing: list[Buffer] = field(default_factory=list[Buffer])
    _is_reading_paused: bool = False
    _is_writing_paused: bool = False
    _has_ended: bool = False  # the client sends nothing more
    # The error after which nothing is read; the connection closes after the last answer.
    _malformed: str = ""
    _waits_for_budget: bool = False
    context: RequestContext | None = None
    dispatcher: "Dispatcher | GuardedDispatcher" = field(init=False)
    peer_host: str = ""
    last_active_s: float = field(init=False)
    silent_since_s: float | None = field(init=False)  # None after the first valid request
    partial_since_s: float | None = None
    stalled_since_s: float | None = None
    closing_since_s: float | None = None

    def __post_init__(self) -> None:
        server = self._server
        self.dispatcher = server.dispatcher
        self._receiver = FrameReceiver(server.request_bytes_max(self.listener), server.frame_memory)
        self.last_active_s = self.silent_since_s = server.now_s

    @property
    def has_requests(self) -> bool:
        """Return whether any request waits for its start or for its answer."""
        return bool(self._in_flight or self._frames)

    @property
    def _is_muted(self) -> bool:
        return self.context is not None and self.context.is_muted

    @property
    def can_finish(self) -> bool:
        """Return whether only the memory budget prevents the rest of a request from being read."""
        cannot = self._frames or self._is_writing_paused or self._has_ended or self._malformed
        is_open = self.closing_since_s is None
        return bool(self._unframed_bytes and is_open and not cannot)

    @property
    def has_sent_more(self) -> bool:
        """Return whether bytes of the client have arrived that were not read."""
        transport = self._transport
        if transport is None or (peer := transport.get_extra_info("socket")) is None:
            return True
        return bool(transport.get_extra_info(UNREAD_BYTES) or unread_bytes(peer))

    @property
    def is_dispensable(self) -> bool:
        """Return whether a close would drop only answers, if the client sends nothing more."""
        is_waiting = self._in_flight and not (self._frames or self._is_writing_paused)
        return bool(is_waiting and self.context and self.context.produce_queue is None)

    def is_silent(self, now_s: float, first_request_timeout_s: float) -> bool:
        """Return whether the client did not send a valid request, or log in, within the timeout."""
        # The broker itself does not read.
        is_kept_waiting = self._is_reading_paused and not self._is_writing_paused
        if self.silent_since_s is None or is_kept_waiting:
            return False
        return now_s - self.silent_since_s > first_request_timeout_s

    def is_idle(self, now_s: float, idle_max_s: float) -> bool:
        """Return whether the connection is idle for too long.

        A connection with requests is not idle while it is read, because its close would be noticed.
        Otherwise the close may be hidden behind unread bytes, so that `is_deserted` does not help.
        """
        is_watched = self.has_requests and not (self._is_reading_paused or self._has_ended)
        return now_s - self.last_active_s > idle_max_s and not is_watched

    def is_deserted(self, now_s: float) -> bool:
        """Return whether the client has closed the connection, and its requests may be dropped.

        This is checked while the socket is not read. Requests keep the connection for
        UNATTENDED_MAX_S after its last activity (`eof_received`).
        """
        if not (self._is_reading_paused or self._has_ended) or self._transport is None:
            return False
        may_wait = now_s - self.last_active_s < UNATTENDED_MAX_S
        if may_wait and self.has_requests:
            return False
        if self._has_ended:
            return True
        peer = self._transport.get_extra_info("socket")
        if peer is None or self._transport.is_closing() or not has_peer_closed(peer):
            return False
        return not (may_wait and self.has_sent_more)  # the unread bytes may be requests

"""The server of a connection, in the form that a connection uses."""

import asyncio
from typing import Protocol, TypeVar

from ...runtime.turn_share import TurnShare
from ...wire.frame_memory import FrameMemory
from ..config.broker_config import BrokerConfig
from ..config.listeners import Listener
from .answer_times import AnswerTimes
from .dispatch import Dispatcher
from .memory_budget import MemoryBudget
from .request_context import RequestContext
from .unserved_requests import UnservedRequests

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

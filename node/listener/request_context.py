"""The context of a request, which is the state of its connection."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ...coordinator.security.principal import ANONYMOUS, Principal
from ..security.access import Access
from .memory_budget import MemoryBudget
from .muting import Mute
from .request_time import RequestTime
from .sasl.login import Login

if TYPE_CHECKING:
    from ..services import BrokerServices

ANSWER_BYTES_MAX = 128 * 1024 * 1024  # the default without a server's memory budget


class ServedApi(Protocol):
    """The supported versions of one API. `advertised_from` is set if ApiVersions shows more."""

    @property
    def key(self) -> int: ...
    @property
    def min_version(self) -> int: ...
    @property
    def max_version(self) -> int: ...
    @property
    def advertised_from(self) -> int | None: ...


@dataclass(slots=True, eq=False)
class RequestContext:
    """The state of a connection for its handlers, in one object for the life of the connection.

    `connection_id` is unique in a process. `principal` is set by a TLS certificate or a login,
    before any request that needs rights. `listener` is the name of the connection's listener.
    `client_software` is the name and version from ApiVersions v3 (KIP-511). `produce_queue` exists
    while produce requests wait before their append, `repeated_fetch` after the first large fetch,
    `login` on listeners with SASL. `client_id` is set by the latest fetch, while fetched bytes are
    counted.
    `request_time` measures the current request, if there are request quotas. While `is_muted` is
    set no request starts. `mute` has the timer of the mute, and `resume` starts the waiting
    requests after it. `waited_ms` returns the age of the connection's newest bytes in the kernel.
    `budget` is shared by all connections. `is_closed` is set before the callbacks of `on_close` are
    called.
    """

    broker: "BrokerServices"
    connection_id: int
    peer_host: str
    principal: Principal = ANONYMOUS
    listener: str = "PLAINTEXT"
    client_software: tuple[str, str] = ("unknown", "unknown")
    table: Mapping[int, ServedApi] = field(default_factory=dict)
    on_close: list[Callable[[], None]] = field(default_factory=list)
    is_closed: bool = False
    produce_queue: object = None
    repeated_fetch: object = None
    waited_ms: Callable[[], int] = lambda: 0
    budget: MemoryBudget = field(default_factory=lambda: MemoryBudget(ANSWER_BYTES_MAX))
    connected_at_ms: int = 0
    login: Login | None = None
    client_id: str | None = None
    is_muted: bool = False
    mute: Mute | None = None
    resume: Callable[[], None] | None = None
    request_time: RequestTime | None = None
    _access: Access | None = None

    @property
    def is_let_in(self) -> bool:
        """Return whether the client may send requests other than a login."""
        return self.login is None or self.login.is_complete

    @property
    def age_ms(self) -> int:
        """The age of the connection in milliseconds."""
        return self.broker.clock.monotonic_ms() - self.connected_at_ms

    @property
    def access(self) -> Access:
        """The rights of the client. Requires an authorizer."""
        authorizer = self.broker.authorizer
        assert authorizer is not None
        if self._access is None or self._access.principal is not self.principal:
            log = self.broker.refusals
            self._access = Access(authorizer, self.principal, self.peer_host, log)
        return self._access

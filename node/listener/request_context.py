"""What a handler knows of the connection that its request came by."""

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

ANSWER_BYTES_MAX = 128 * 1024 * 1024  # where no server counts


class ServedApi(Protocol):
    """The versions of one API that are served; `advertised_from` where ApiVersions says more."""

    @property
    def key(self) -> int: ...
    @property
    def min_version(self) -> int: ...
    @property
    def max_version(self) -> int: ...
    @property
    def advertised_from(self) -> int | None: ...


class WaitingProduces(Protocol):
    """Produces of one connection that wait to be verified."""

    @property
    def needs_no_client(self) -> bool: ...


@dataclass(slots=True, eq=False)
class RequestContext:
    """What a handler knows of the connection; one for each, for its whole life.

    `connection_id` is never used twice in a process. `principal` is who the client is: it changes
    once, by a login, before any request that is not part of the login. `listener` is the name of
    the listener that the client chose. `client_software` is what ApiVersions v3
    told (KIP-511): name, version. `produce_queue` is there while produces wait to be verified,
    `repeated_fetch` once a large fetch has come.
    `login` is there on listeners with SASL.
    `client_id` is that of the newest fetch, where quotas are counted.
    `request_time` measures the request that is being handled, where quotas are about that.
    While `is_muted` no request starts; `mute` has the timer, and `resume` goes on after it.
    `waited_ms` is for how long the newest bytes of the connection have lain in the kernel. `budget`
    is that of all connections. `is_closed` before the callbacks of `on_close` are called.
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
    produce_queue: WaitingProduces | None = None
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
        """Return whether the client may ask for more than a login."""
        return self.login is None or self.login.is_complete

    @property
    def age_ms(self) -> int:
        """For how long the client is connected."""
        return self.broker.clock.monotonic_ms() - self.connected_at_ms

    @property
    def access(self) -> Access:
        """What the client may do; there must be an authorizer."""
        authorizer = self.broker.authorizer
        assert authorizer is not None
        if self._access is None or self._access.principal is not self.principal:
            log = self.broker.refusals
            self._access = Access(authorizer, self.principal, self.peer_host, log)
        return self._access

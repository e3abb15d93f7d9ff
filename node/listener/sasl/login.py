"""The login of one connection, as a state machine around the server side of a SASL mechanism.

The time is an argument, for tests. Before the login is complete, only ApiVersions and the two SASL
APIs are served. With `connections.max.reauth.ms` a session lasts for that time, and the client logs
in again on the same connection (KIP-368), with the same mechanism and as the same principal.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import MappingProxyType

from ....coordinator.security.principal import USER, Principal
from ....wire.errors import (
    IllegalSaslState,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from ....wire.security.sasl import FailedLogin, SaslServer

AGAIN_AFTER_MS = 1_000  # the minimum interval of logins on a connection
NAMED_MAX = 64  # the limit of letters of a mechanism in the log
TOKEN_BYTES_MAX = 32 * 1024  # limits the work for a client without a login to a few milliseconds
Mechanisms = Mapping[str, Callable[[], SaslServer]]


class LoginState(Enum):
    AWAITS_HANDSHAKE = auto()
    AWAITS_TOKEN = auto()
    COMPLETE = auto()
    AWAITS_TOKEN_AGAIN = auto()
    FAILED = auto()


_S = LoginState
ALLOWED: Mapping[LoginState, frozenset[LoginState]] = {
    _S.AWAITS_HANDSHAKE: frozenset({_S.AWAITS_TOKEN, _S.FAILED}),
    _S.AWAITS_TOKEN: frozenset({_S.COMPLETE, _S.FAILED}),
    _S.COMPLETE: frozenset({_S.AWAITS_TOKEN_AGAIN, _S.FAILED}),
    _S.AWAITS_TOKEN_AGAIN: frozenset({_S.COMPLETE, _S.FAILED}),
    _S.FAILED: frozenset(),
}


class Login:
    """The login of one connection, with its `principal` once the login is complete."""

    def __init__(
        self,
        mechanisms: Mechanisms,
        session_max_ms: int,
        of_mechanism: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Create the login of a connection.

        session_max_ms: the length of a session. 0 stands for the life of the connection.
        of_mechanism: the lengths for mechanisms that have their own value.
        """
        self.state, self.principal = LoginState.AWAITS_HANDSHAKE, None
        self._mechanisms, self._session_max_ms = mechanisms, session_max_ms
        self._of_mechanism = of_mechanism
        self._mechanism, self._server = "", None
        self._begun_ms = self._ends_ms = 0

    state: LoginState
    principal: Principal | None
    _server: SaslServer | None

    @property
    def mechanisms(self) -> list[str]:
        """The names of the enabled mechanisms."""
        return list(self._mechanisms)

    @property
    def is_complete(self) -> bool:
        """Return whether the client has logged in, also during a repeated login."""
        return self.principal is not None and self.state is not LoginState.FAILED

    def is_over(self, now_ms: int) -> bool:
        """Return whether the session has expired without a repeated login."""
        return 0 < self._ends_ms <= now_ms

    def choose(self, mechanism: str, now_ms: int) -> None:
        """Begin with a mechanism (SaslHandshake), or raise the error for the client."""
        if self.state is LoginState.COMPLETE and now_ms - self._begun_ms >= AGAIN_AFTER_MS:
            state = LoginState.AWAITS_TOKEN_AGAIN
        elif self.state is LoginState.AWAITS_HANDSHAKE:
            state = LoginState.AWAITS_TOKEN
        else:
            raise IllegalSaslState
        if mechanism not in self._mechanisms:
            self._move(LoginState.FAILED)
            raise UnsupportedSaslMechanism(f"Unsupported SASL mechanism {mechanism[:NAMED_MAX]}")
        if self._mechanism not in ("", mechanism):
            self._move(LoginState.FAILED)
            raise SaslAuthenticationFailed(
                "Unable to change SASL mechanisms during re-authentication. "
                f"Original: {self._mechanism}, Requested: {mechanism}"
            )
        self._move(state)
        self._mechanism, self._begun_ms = mechanism, now_ms
        self._server = self._mechanisms[mechanism]()

    def take(self, token: bytes, now_ms: int) -> tuple[bytes, int]:
        """Process a token.

        Returns the next token and the session's lifetime in ms, 0 if unlimited.

        Raises the error for the client. After SaslAuthenticationFailed the connection is closed.
        """
        server = self._server
        if server is None:
            raise IllegalSaslState(
                "SaslAuthenticate request received after successful authentication"
                if self.is_complete
                else "SaslAuthenticate request received without a handshake"
            )
        if len(token) > TOKEN_BYTES_MAX:
            raise self._failed("")
        try:
            answer = server.respond(token)
        except (FailedLogin, KafkaError) as problem:
            raise self._failed(str(problem) if isinstance(problem, FailedLogin) else "") from None
        if not server.is_done:
            return answer, 0
        principal = Principal(USER, server.username)
        if self.principal not in (None, principal):
            raise self._failed(
                "Cannot change principals during re-authentication from "
                f"{self.principal} to {principal}"
            )
        self._server = None
        self._move(LoginState.COMPLETE)
        self.principal = principal
        session_max_ms = self._of_mechanism.get(self._mechanism, self._session_max_ms)
        limits = [limit for limit in (session_max_ms, server.lifetime_ms) if limit]
        lifetime_ms = min(limits, default=0)
        self._ends_ms = now_ms + lifetime_ms if limits else 0
        return answer, lifetime_ms

    def _failed(self, sentence: str) -> KafkaError:
        again = self.state is LoginState.AWAITS_TOKEN_AGAIN
        self._server = None
        self._move(LoginState.FAILED)
        return SaslAuthenticationFailed(
            sentence
            or f"Authentication failed during {'re-' * again}authentication due to invalid "
            f"credentials with SASL mechanism {self._mechanism}"
        )

    def _move(self, state: LoginState) -> None:
        if state not in ALLOWED[self.state]:
            raise IllegalSaslState(f"{self.state.name} does not lead to {state.name}")
        self.state = state

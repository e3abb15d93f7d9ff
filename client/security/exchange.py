"""The SASL authentication of a connection: SaslHandshake, then SaslAuthenticate until the end.

The file does no I/O. A generator yields requests to the broker (or computations), is sent their
results, and returns the lifetime of the session (KIP-368). The generator serves the first
authentication of a connection and each later one.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

from ...wire.errors import (
    ErrorCode,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    error_for,
)
from ...wire.security.secret import Secret
from .scram import Derive

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
ROUNDS_MAX = 8  # SCRAM takes two


class Mechanism(Protocol):
    """The client's side of one SASL authentication, for any mechanism."""

    name: str

    def start(self) -> bytes: ...

    def respond(self, challenge: bytes) -> bytes | Derive | None:
        """Return the client's next message, or None at the end.

        A `Derive` is a value that the caller must compute first.
        """
        ...


class PlainClient:
    """The client's side of PLAIN (RFC 4616). Only TLS keeps its password secret."""

    name = "PLAIN"

    def __init__(self, username: str, password: Secret) -> None:
        self._username, self._password = username, password

    def start(self) -> bytes:
        """Return the message, with an empty authorization id, the name, and the password."""
        return f"\0{self._username}\0{self._password.reveal()}".encode()

    def respond(self, challenge: bytes) -> None:
        """Raise SaslAuthenticationFailed if the broker's answer has data."""
        if challenge:
            raise SaslAuthenticationFailed("PLAIN: the server answers what it should not")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that the exchange sends to the broker."""

    api_key: int
    values: dict[str, Any]


Exchange = Generator[Ask | Derive, Any, int]


def sasl_exchange(mechanism: Mechanism, broker: str, who: str) -> Exchange:
    """Run an authentication as a generator, and return the lifetime of the session in ms.

    The caller sends the answer to each `Ask`, and the bytes of each `Derive`, into the generator.
    With a lifetime of 0 the session lasts as long as the connection. `broker` and `who` are for
    messages. Raises SaslAuthenticationFailed, UnsupportedSaslMechanism, IllegalSaslState, which are
    not retriable.
    """
    name = mechanism.name
    answer = yield Ask(SASL_HANDSHAKE, {"mechanism": name})
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise UnsupportedSaslMechanism(
            f"{broker} does not offer {name}; it offers: {offered}. "
            "Set sasl.mechanism to one of them, or have it enabled (sasl.enabled.mechanisms)"
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise IllegalSaslState(
            f"the listener {broker} does not authenticate by SASL: "
            "set security.protocol to PLAINTEXT (or SSL), or name the address of a SASL listener"
        )
    if answer.error_code:
        raise error_for(int(answer.error_code))
    step: bytes | Derive | None = mechanism.start()
    refusal = ""
    for _ in range(ROUNDS_MAX):
        if isinstance(step, Derive):
            assert hasattr(mechanism, "derived")
            step = mechanism.derived((yield step))  # type: ignore[attr-defined]
        answer = yield Ask(SASL_AUTHENTICATE, {"auth_bytes": step})
        if answer.error_code:
            raise _refused(answer, name, broker, who, refusal)
        try:
            step = mechanism.respond(bytes(answer.auth_bytes))
        except SaslAuthenticationFailed as problem:
            raise SaslAuthenticationFailed(f"{broker}: {problem}") from None
        refusal = getattr(mechanism, "refusal", "")
        if step is None:
            return max(0, getattr(answer, "session_lifetime", 0))
    raise SaslAuthenticationFailed(f"{broker}: {name} comes to no end")


def _refused(answer: Any, name: str, broker: str, who: str, refusal: str) -> Exception:
    problem = error_for(int(answer.error_code))
    if not isinstance(problem, SaslAuthenticationFailed):
        return error_for(int(answer.error_code), answer.error_message)
    words = refusal or (answer.error_message or "").rstrip(".")
    if name == "OAUTHBEARER":
        advice = (
            "The token has expired, or its issuer, audience or signature is not what the broker "
            "expects: look at the token, and at the broker's sasl.oauthbearer.* settings"
        )
    else:
        credential = f", or has no {name} credential there" if name.startswith("SCRAM") else ""
        advice = (
            f"The user is unknown to the cluster{credential}, or the password is wrong: check "
            "sasl.username and sasl.password"
        )
    said = f" ({words})" if words else ""
    return SaslAuthenticationFailed(f"{broker} refused {who} by {name}{said}. {advice}")

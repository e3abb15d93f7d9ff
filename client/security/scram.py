"""The client's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).

The file does no I/O. The nonce is given. The one expensive step, thousands of rounds of PBKDF2, is
left to the caller (`Derive`), which computes outside of the event loop.

A client must not skip three checks. The server's nonce must begin with the client's and be longer,
or an old conversation could be replayed. The server's signature must be right, or the server does
not know the password. The number of rounds is bounded on both sides. Too few rounds make a stolen
proof cheap to crack, and too many would occupy the client for as long as a server likes.

Apache Kafka does not prepare names and passwords with SASLprep but uses their UTF-8 bytes. This
client does the same, or some passwords would not match those that Kafka's tools have stored.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ...wire.errors import IllegalSaslState, KafkaError, SaslAuthenticationFailed
from ...wire.security.secret import Secret

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_LEAST = 4_096  # RFC 7677, and the least that Kafka's own client accepts
ITERATIONS_MOST = 1_000_000  # Kafka stores 16,384 at most; a million take about a second
ITERATIONS = re.compile(r"[1-9][0-9]{0,7}")
HEADER = b"n,,"  # no channel binding, no authorization id


class ScramState(Enum):
    INITIAL = auto()
    FIRST_SENT = auto()
    DERIVING = auto()
    FINAL_SENT = auto()
    DONE = auto()
    FAILED = auto()


_S = ScramState
ALLOWED: Mapping[ScramState, frozenset[ScramState]] = {
    _S.INITIAL: frozenset({_S.FIRST_SENT, _S.FAILED}),
    _S.FIRST_SENT: frozenset({_S.DERIVING, _S.FAILED}),
    _S.DERIVING: frozenset({_S.FINAL_SENT, _S.FAILED}),
    _S.FINAL_SENT: frozenset({_S.DONE, _S.FAILED}),
    _S.DONE: frozenset(),
    _S.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Derive:
    """A PBKDF2 computation for the caller, with the arguments of `hashlib.pbkdf2_hmac`."""

    hash_name: str
    password: Secret
    salt: bytes
    iterations: int

    def compute(self) -> bytes:
        """Return the salted password, after a long computation without the interpreter's lock."""
        password = self.password.reveal().encode()
        return hashlib.pbkdf2_hmac(self.hash_name, password, self.salt, self.iterations)


class ScramClient:
    """The client's side of one authentication.

    `nonce` is printable, has no commas, and was never used before.
    """

    def __init__(
        self, mechanism: str, username: str, password: Secret, nonce: str, *, hash_name: str = ""
    ) -> None:
        self.name, self.state = mechanism, ScramState.INITIAL
        self._hash = hash_name or HASHES[mechanism]
        self._password, self._nonce = password, nonce
        self._first_bare = f"n={_escaped(username)},r={nonce}".encode()
        self._auth_message = self._without_proof = b""
        self._server_signature = b""

    def start(self) -> bytes:
        self._move(ScramState.FIRST_SENT)
        return HEADER + self._first_bare

    def respond(self, challenge: bytes) -> Derive | None:
        """Return the value to derive after server-first, or None after server-final.

        Raises SaslAuthenticationFailed if the server does not prove that it knows the password, or
        violates the protocol.
        """
        if self.state is ScramState.FIRST_SENT:
            return self._take_first(challenge)
        if self.state is ScramState.FINAL_SENT:
            self._take_final(challenge)
            return None
        raise IllegalSaslState(f"{self.name}: nothing of the server is awaited")

    def derived(self, salted_password: bytes) -> bytes:
        """Return the client-final message, given the salted password of `respond`'s `Derive`."""
        self._move(ScramState.FINAL_SENT)
        client_key = self._hmac(salted_password, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, self._auth_message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = self._hmac(salted_password, b"Server Key")
        self._server_signature = self._hmac(server_key, self._auth_message)
        return self._without_proof + b",p=" + base64.b64encode(proof)

    def _take_first(self, challenge: bytes) -> Derive:
        fields = self._fields(challenge)
        if fields and fields[0][0] == "m":
            raise self._failed("the server asks for an extension that this client does not know")
        if [name for name, _ in fields[:3]] != ["r", "s", "i"]:
            raise self._failed("the server's first message has no nonce, salt and iteration count")
        nonce, salt_text, count_text = (value for _, value in fields[:3])
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise self._failed("the server's nonce does not go on from ours")
        salt = self._decoded(salt_text)
        if not salt:
            raise self._failed("the server's salt is empty")
        iterations = int(count_text) if ITERATIONS.fullmatch(count_text) else 0
        if not ITERATIONS_LEAST <= iterations <= ITERATIONS_MOST:
            raise self._failed(
                f"the server asks for {count_text[:20]} iterations; "
                f"{ITERATIONS_LEAST} to {ITERATIONS_MOST} are safe"
            )
        self._without_proof = b"c=" + base64.b64encode(HEADER) + b",r=" + nonce.encode()
        self._auth_message = b",".join((self._first_bare, challenge, self._without_proof))
        self._move(ScramState.DERIVING)
        return Derive(self._hash, self._password, salt, iterations)

    def _take_final(self, challenge: bytes) -> None:
        fields = self._fields(challenge)
        name, value = fields[0] if fields else ("", "")
        if name == "e":
            raise self._failed(f"the server says {value}")
        if name != "v":
            raise self._failed("the server's last message has no signature")
        if not hmac.compare_digest(self._decoded(value), self._server_signature):
            raise self._failed("the server's signature is wrong: it does not know the password")
        self._move(ScramState.DONE)

    def _fields(self, message: bytes) -> list[tuple[str, str]]:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise self._failed("the server's message is not UTF-8") from None
        fields: list[tuple[str, str]] = []
        for part in text.split(","):
            name, separator, value = part.partition("=")
            if len(name) != 1 or not separator:
                raise self._failed("the server's message is not of the form name=value,...")
            fields.append((name, value))
        return fields

    def _decoded(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._failed("the server's message is not proper base64") from None

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)

    def _failed(self, why: str) -> KafkaError:
        self._move(ScramState.FAILED)
        return SaslAuthenticationFailed(f"{self.name}: {why}")

    def _move(self, state: ScramState) -> None:
        if state not in ALLOWED[self.state]:
            raise IllegalSaslState(f"{self.name}: {self.state.name} does not lead to {state.name}")
        self.state = state


def _escaped(name: str) -> str:
    """Escape "=" and "," in a name, which have a meaning in RFC 5802."""
    return name.replace("=", "=3D").replace(",", "=2C")

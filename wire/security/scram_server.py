"""The server side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).

This file is pure, and the caller passes the nonces. A broker stores two keys of a user and never
the password. Therefore a login takes a few hashes and no rounds of PBKDF2. An unknown user is asked
for a proof like any other, with a constant salt. The refusal has the same words, so clients cannot
learn which names exist.

As in Apache Kafka, names are not prepared by SASLprep, and their UTF-8 bytes are used.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from ..errors import IllegalSaslState
from .sasl import FailedLogin

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_LEAST, ITERATIONS_MOST = 4_096, 16_384  # the range that Kafka stores
_FIRST = re.compile(r"([ny]),(?:a=([^,]*))?,(n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.S)
_FINAL = re.compile(r"(c=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=([^,]*)", re.S)
_NAME = re.compile(r"(?:[^=,]|=2C|=3D)+")


class ScramCredential(NamedTuple):
    """The stored keys of a user's password, from which the password cannot be computed."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ServerState(Enum):
    AWAITS_FIRST = auto()
    AWAITS_FINAL = auto()
    DONE = auto()
    FAILED = auto()


_S = ServerState
ALLOWED: Mapping[ServerState, frozenset[ServerState]] = {
    _S.AWAITS_FIRST: frozenset({_S.AWAITS_FINAL, _S.FAILED}),
    _S.AWAITS_FINAL: frozenset({_S.DONE, _S.FAILED}),
    _S.DONE: frozenset(),
    _S.FAILED: frozenset(),
}


def credential_of(
    mechanism: str, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a user from the password's PBKDF2 hash."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, stored_key, server_key, iterations)


class ScramServer:
    """The server side of one SCRAM login.

    nonce: printable, without commas, and never used before. find: a function that returns the
    credential of a user, or None for an unknown user. secret: random bytes of this process, from
    which the salt of an unknown user is derived.
    """

    def __init__(
        self,
        mechanism: str,
        nonce: str,
        find: Callable[[str], ScramCredential | None],
        secret: bytes,
    ) -> None:
        self.state, self.username = ServerState.AWAITS_FIRST, ""
        self.lifetime_ms = 0
        self._hash, self._server_nonce = HASHES[mechanism], nonce
        self._find, self._secret = find, secret
        self._is_known = False
        self._credential = ScramCredential(b"", b"", b"", 0)
        self._first_bare = self._server_first = self._header = self._nonce = ""

    @property
    def is_done(self) -> bool:
        """Return whether the client has proved that it knows the password of `username`."""
        return self.state is ServerState.DONE

    def respond(self, message: bytes) -> bytes:
        """Return the server's next message, or raise FailedLogin."""
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise self._failed() from None
        if self.state is ServerState.AWAITS_FIRST:
            return self._take_first(text).encode()
        if self.state is ServerState.AWAITS_FINAL:
            return self._take_final(text).encode()
        raise IllegalSaslState("nothing of the client is awaited")

    def _take_first(self, text: str) -> str:
        found = _FIRST.fullmatch(text)
        if found is None or not _NAME.fullmatch(found[4]):
            raise self._failed()  # also for a client that requires channel binding
        flag, asked, self._first_bare, name, client_nonce = found.groups()
        self.username = _unescaped(name)
        if asked and _unescaped(asked) != self.username:
            raise self._failed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self._header = f"{flag},{f'a={asked}' if asked is not None else ''},"
        self._nonce = client_nonce + self._server_nonce
        credential = self._find(self.username)
        self._is_known = credential is not None
        self._credential = credential or self._invented()
        salt = base64.b64encode(self._credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._move(ServerState.AWAITS_FINAL)
        return self._server_first

    def _take_final(self, text: str) -> str:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise self._failed()
        without_proof, binding, nonce, proof_text = found.groups()
        proof, credential = self._decoded(proof_text), self._credential
        message = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, message, self._hash)
        is_right = len(proof) == len(signature) and hmac.compare_digest(
            hashlib.new(
                self._hash, bytes(a ^ b for a, b in zip(proof, signature, strict=True))
            ).digest(),
            credential.stored_key,
        )
        is_ours = self._decoded(binding) == self._header.encode() and nonce == self._nonce
        if not (is_right and is_ours and self._is_known):
            raise self._failed()
        self._move(ServerState.DONE)
        server_signature = hmac.digest(credential.server_key, message, self._hash)
        return f"v={base64.b64encode(server_signature).decode()}"

    def _invented(self) -> ScramCredential:
        """Return a credential for an unknown user, with a salt that is the same at each login."""
        salt = hmac.digest(self._secret, self.username.encode(), "sha256")[:16]
        key = hmac.digest(self._secret, salt, self._hash)
        return ScramCredential(salt, key, key, ITERATIONS_LEAST)

    def _decoded(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._failed() from None

    def _failed(self, sentence: str = "") -> FailedLogin:
        self._move(ServerState.FAILED)
        return FailedLogin(sentence)

    def _move(self, state: ServerState) -> None:
        if state not in ALLOWED[self.state]:
            raise IllegalSaslState(f"{self.state.name} does not lead to {state.name}")
        self.state = state


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")

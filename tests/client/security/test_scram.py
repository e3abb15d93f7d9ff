"""Test SCRAM with the conversations of RFC 5802 and RFC 7677, and with a dishonest server."""

import base64
import hashlib
import hmac
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.client.security.scram import (
    ALLOWED,
    HASHES,
    ITERATIONS_LEAST,
    ITERATIONS_MOST,
    Derive,
    ScramClient,
    ScramState,
)
from oncelog.wire.errors import IllegalSaslState, SaslAuthenticationFailed
from oncelog.wire.security.secret import Secret

from ...present import present

VECTORS = [
    (  # RFC 5802, section 5
        "sha1", "fyko+d2lbbFgONRv9qkxdawL", "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92", "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=", "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (  # RFC 7677, section 3
        "sha256", "rOprNGfwEbeRWgbNEkqO", "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==", "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]  # fmt: skip
NONCE = "abc"
SALT = base64.b64encode(b"salt").decode()
FIRST = f"r={NONCE}xyz,s={SALT},i=4096"


def client(password: str = "pencil", **options: str) -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", Secret(password), NONCE, **options)


@pytest.mark.parametrize(("hash_name", "ours", "both", "salt", "proof", "signature"), VECTORS)
def test_scram_client_repeats_the_example_conversations_of_the_rfcs(
    hash_name, ours, both, salt, proof, signature
):
    scram = ScramClient("SCRAM", "user", Secret("pencil"), ours, hash_name=hash_name)
    assert scram.start() == f"n,,n=user,r={ours}".encode()
    wanted = scram.respond(f"r={both},s={salt},i=4096".encode())
    assert wanted == Derive(hash_name, Secret("pencil"), base64.b64decode(salt), 4096)
    assert scram.derived(present(wanted).compute()) == f"c=biws,r={both},p={proof}".encode()
    assert scram.respond(f"v={signature}".encode()) is None
    assert scram.state is ScramState.DONE


class Server:
    """A correct SCRAM server that has only the values that a server stores for a user."""

    def __init__(self, mechanism: str, password: str, salt: bytes, iterations: int) -> None:
        self.hash, self.salt, self.iterations = HASHES[mechanism], salt, iterations
        salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        self.stored_key = hashlib.new(self.hash, client_key).digest()
        self.server_key = hmac.digest(salted, b"Server Key", self.hash)

    def first(self, message: bytes) -> bytes:
        assert message.startswith(b"n,,")
        self.bare = message[3:]
        self.name, nonce = self.bare.decode().split(",", 1)
        salt = base64.b64encode(self.salt).decode()
        self.said = f"{nonce}SERVER,s={salt},i={self.iterations}".encode()
        return self.said

    def final(self, message: bytes) -> bytes:
        without, _, proof = message.rpartition(b",p=")
        auth = b",".join((self.bare, self.said, without))
        signature = hmac.digest(self.stored_key, auth, self.hash)
        pairs = zip(base64.b64decode(proof), signature, strict=True)
        key = bytes(a ^ b for a, b in pairs)
        if hashlib.new(self.hash, key).digest() != self.stored_key:
            return b"e=invalid-proof"
        return b"v=" + base64.b64encode(hmac.digest(self.server_key, auth, self.hash))


@settings(deadline=None)  # thousands of rounds of PBKDF2, on a busy machine
@given(
    st.sampled_from(sorted(HASHES)),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.booleans(),
)
def test_scram_client_authenticates_only_with_the_right_password(
    mechanism, name, password, is_right
):
    server = Server(mechanism, password if is_right else password + "!", b"salt", 4096)
    scram = ScramClient(mechanism, name, Secret(password), "nonce")
    wanted = scram.respond(server.first(scram.start()))
    escaped = server.name.removeprefix("n=")
    assert escaped.replace("=2C", ",").replace("=3D", "=") == name
    answer = server.final(scram.derived(present(wanted).compute()))
    if is_right:
        assert scram.respond(answer) is None
    else:
        with pytest.raises(SaslAuthenticationFailed, match="invalid-proof"):
            scram.respond(answer)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (f"r=ab!,s={SALT},i=4096", "does not go on from ours"),
        (f"r={NONCE},s={SALT},i=4096", "does not go on from ours"),
        (f"r={NONCE}x,s={SALT},i={ITERATIONS_LEAST - 1}", "iterations"),
        (f"r={NONCE}x,s={SALT},i={ITERATIONS_MOST + 1}", "iterations"),
        (f"r={NONCE}x,s={SALT},i=-4096", "iterations"),
        (f"r={NONCE}x,s={SALT},i=9{'9' * 5000}", "iterations"),
        (f"r={NONCE}x,s={SALT},i=\u0664\u0660\u0669\u0666", "iterations"),
        (f"r={NONCE}x,s=,i=4096", "salt is empty"),
        (f"r={NONCE}x,s=%%%,i=4096", "base64"),
        (f"m=must,r={NONCE}x,s={SALT},i=4096", "extension"),
        (f"s={SALT},r={NONCE}x,i=4096", "no nonce, salt"),
        (f"r={NONCE}x,s={SALT}", "no nonce, salt"),
        ("", "not of the form"),
        ("nonsense", "not of the form"),
        ("e=other-error", "no nonce, salt"),
        (b"\xff\xfe", "not UTF-8"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_scram_client_refuses_an_untrustworthy_first_server_message(message, why):
    scram = client()
    scram.start()
    with pytest.raises(SaslAuthenticationFailed, match=why):
        scram.respond(message if isinstance(message, bytes) else message.encode())
    assert scram.state is ScramState.FAILED


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"v=" + base64.b64encode(b"\0" * 32), "does not know the password"),
        (b"v=", "does not know the password"),
        (b"v=!!", "base64"),
        (b"e=unknown-user", "the server says unknown-user"),
        (b"x=1", "no signature"),
        (b"", "not of the form"),
    ],
)
def test_scram_untrustworthy_last_server_message_is_refused(message, why):
    scram = client()
    scram.start()
    scram.derived(present(scram.respond(FIRST.encode())).compute())
    with pytest.raises(SaslAuthenticationFailed, match=why) as failure:
        scram.respond(message)
    assert "pencil" not in str(failure.value)
    with pytest.raises(IllegalSaslState):
        scram.respond(message)


def test_scram_extensions_after_the_iteration_count_are_skipped():
    scram = client()
    scram.start()
    assert isinstance(scram.respond(f"{FIRST},x=more".encode()), Derive)


@pytest.mark.parametrize(("now", "then"), list(product(ScramState, ScramState)))
def test_scram_client_changes_state_only_along_allowed_transitions(now, then):
    scram = client()
    scram.state = now
    if then in ALLOWED[now]:
        scram._move(then)
        assert scram.state is then
    else:
        with pytest.raises(IllegalSaslState):
            scram._move(then)
        assert scram.state is now


@given(st.binary(max_size=200), st.booleans())
def test_scram_server_message_of_random_bytes_is_refused(message, is_last):
    scram = client()
    scram.start()
    if is_last:
        scram.derived(present(scram.respond(FIRST.encode())).compute())
    with pytest.raises(SaslAuthenticationFailed):
        scram.respond(message)

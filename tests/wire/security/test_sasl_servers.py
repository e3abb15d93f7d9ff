"""Test SASL PLAIN and SCRAM on the server, with wrong passwords and altered or random bytes."""

import base64
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.client.security.scram import ScramClient
from oncelog.wire.errors import IllegalSaslState, SaslAuthenticationFailed
from oncelog.wire.security.sasl import FailedLogin, PlainServer
from oncelog.wire.security.scram_server import (
    ALLOWED,
    HASHES,
    ScramCredential,
    ScramServer,
    ServerState,
    credential_of,
)
from oncelog.wire.security.secret import Secret

NAMES = st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text)
MECHANISMS = st.sampled_from(sorted(HASHES))
DIFFERENT = "Client requested an authorization id that is different from username"


def credential(mechanism: str, password: str, rounds: int = 4096) -> ScramCredential:
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), b"salt", rounds)
    return credential_of(mechanism, salted, b"salt", rounds)


def server(mechanism: str = "SCRAM-SHA-256", **users: str) -> ScramServer:
    known = {name: credential(mechanism, password) for name, password in users.items()}
    return ScramServer(mechanism, "servernonce", known.get, b"secret")


def conversation(login: ScramServer, name: str, password: str, mechanism: str) -> None:
    client = ScramClient(mechanism, name, Secret(password), "clientnonce")
    derive = client.respond(login.respond(client.start()))
    assert derive is not None
    client.respond(login.respond(client.derived(derive.compute())))


@settings(max_examples=25, deadline=None)
@given(NAMES, st.text(min_size=1, max_size=20), MECHANISMS)
def test_scram_server_accepts_a_client_with_the_password(
    name: str, password: str, mechanism: str
) -> None:
    login = ScramServer(
        mechanism, "servernonce", {name: credential(mechanism, password)}.get, b"secret"
    )
    conversation(login, name, password, mechanism)
    assert login.is_done and login.username == name


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["alice", "nobody"]), st.text(min_size=1), MECHANISMS)
def test_scram_server_refuses_a_client_without_the_password(
    name: str, password: str, mechanism: str
) -> None:
    if (name, password) == ("alice", "right"):
        return
    login = server(mechanism, alice="right")
    with pytest.raises((FailedLogin, SaslAuthenticationFailed)) as caught:
        conversation(login, name, password, mechanism)
    assert not login.is_done and str(caught.value) == ""


def test_scram_server_gives_each_unknown_name_its_own_constant_salt() -> None:
    def salt(name: str) -> bytes:
        return server().respond(f"n,,n={name},r=abc".encode()).split(b",")[1]

    assert salt("a") == salt("a") != salt("b")


def test_scram_server_of_another_process_gives_an_unknown_name_another_salt() -> None:
    found = {
        ScramServer("SCRAM-SHA-256", "n", {}.get, secret).respond(b"n,,n=a,r=abc")
        for secret in (b"1", b"2")
    }
    assert len(found) == 2


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n=a,r=b",
        b"p=tls-unique,,n=alice,r=abc",  # channel binding, which is not offered
        b"n,,n=,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,,r=abc,n=alice",
        b"n,,m=x,n=alice,r=abc",
        b"\xff",
    ],
)
def test_scram_server_refuses_a_malformed_first_message(first: bytes) -> None:
    login = server(alice="right")
    with pytest.raises(FailedLogin):
        login.respond(first)
    assert login.state is ServerState.FAILED
    with pytest.raises(IllegalSaslState):
        login.respond(b"n,,n=alice,r=abc")


@pytest.mark.parametrize(("asked", "is_taken"), [("alice", True), ("", True), ("bob", False)])
def test_scram_server_refuses_another_authorization_identity(asked: str, is_taken: bool) -> None:
    login = server(alice="right")
    first = f"n,a={asked},n=alice,r=abc".encode()
    if is_taken:
        assert login.respond(first).startswith(b"r=abcservernonce,")
    else:
        with pytest.raises(FailedLogin, match=DIFFERENT):
            login.respond(first)


@pytest.mark.parametrize(
    ("change", "by"),
    [
        (b"r=clientnonceservernonce", b"r=clientnonceother"),
        (b"c=" + base64.b64encode(b"n,,"), b"c=" + base64.b64encode(b"y,,")),
        (b",p=", b",x=1,p="),
        (b",p=", b",p=AAAA"),
        (b",p=", b",q="),
        (b",p=", b",p=="),
    ],
)
def test_scram_server_refuses_an_altered_final_message(change: bytes, by: bytes) -> None:
    login = server(alice="right")
    client = ScramClient("SCRAM-SHA-256", "alice", Secret("right"), "clientnonce")
    derive = client.respond(login.respond(client.start()))
    assert derive is not None
    final = client.derived(derive.compute())
    assert change in final
    with pytest.raises(FailedLogin):
        login.respond(final.replace(change, by))
    assert not login.is_done


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_scram_server_given_any_messages_raises_only_typed_errors(messages: list[bytes]) -> None:
    login = server(alice="right")
    try:
        for message in messages:
            login.respond(message)
    except (FailedLogin, IllegalSaslState):
        pass
    assert not login.is_done


def test_sasl_server_state_table_has_a_row_for_each_state() -> None:
    assert set(ALLOWED) == set(ServerState)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"\0alice\0right", None),
        (b"alice\0alice\0right", None),
        (b"bob\0alice\0right", DIFFERENT),
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0nobody\0right", "Invalid username or password"),
        (b"\0nobody\0", "password not specified"),
        (b"\0\0right", "username not specified"),
        (b"\0alice", "^$"),
        (b"\0alice\0right\0", "^$"),
        (b"\xff\0alice\0right", "^$"),
    ],
)
def test_sasl_plain_server_accepts_only_the_right_password(
    message: bytes, says: str | None
) -> None:
    login = PlainServer({"alice": Secret("right"), "": Secret("")})
    if says is None:
        assert login.respond(message) == b""
        assert (login.is_done, login.username) == (True, "alice")
    else:
        with pytest.raises(FailedLogin, match=says):
            login.respond(message)
        assert not login.is_done

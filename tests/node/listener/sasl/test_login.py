"""Test the states of a SASL login, its refusals, and reauthentication (KIP-368)."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.node.listener.sasl.login import AGAIN_AFTER_MS, ALLOWED, Login, LoginState
from oncelog.wire.errors import IllegalSaslState, KafkaError, SaslAuthenticationFailed
from oncelog.wire.errors import UnsupportedSaslMechanism as Unsupported
from oncelog.wire.security.sasl import PlainServer
from oncelog.wire.security.secret import Secret

USERS = {"alice": Secret("a"), "bob": Secret("b")}
ALICE, BOB, WRONG = b"\0alice\0a", b"\0bob\0b", b"\0alice\0b"
SESSION_MS = 60_000


def new_login(session_max_ms: int = 0, of_mechanism: Mapping[str, int] = {}) -> Login:
    mechanisms = {"PLAIN": lambda: PlainServer(USERS), "OTHER": lambda: PlainServer(USERS)}
    return Login(mechanisms, session_max_ms, of_mechanism)


def logged_in(session_max_ms: int = 0) -> Login:
    login = new_login(session_max_ms)
    login.choose("PLAIN", 0)
    assert login.take(ALICE, 0) == (b"", session_max_ms)
    return login


def test_sasl_login_sets_the_principal() -> None:
    login = logged_in()
    assert login.is_complete and str(login.principal) == "User:alice"
    assert not login.is_over(10**12)


@pytest.mark.parametrize(("mechanism", "lasts_ms"), [("PLAIN", 5_000), ("OTHER", SESSION_MS)])
def test_sasl_session_lifetime_may_be_set_for_one_mechanism(mechanism: str, lasts_ms: int) -> None:
    login = new_login(SESSION_MS, {"PLAIN": 5_000})
    login.choose(mechanism, 0)
    assert login.take(ALICE, 0) == (b"", lasts_ms)
    assert login.is_over(lasts_ms) and not login.is_over(lasts_ms - 1)


def test_sasl_login_with_a_wrong_password_fails_with_the_message_of_its_mechanism() -> None:
    login = new_login()
    login.choose("PLAIN", 0)
    with pytest.raises(SaslAuthenticationFailed, match="Invalid username or password"):
        login.take(WRONG, 0)
    assert (login.state, login.principal) == (LoginState.FAILED, None)
    with pytest.raises(IllegalSaslState):
        login.choose("PLAIN", 0)


def test_sasl_message_that_is_malformed_is_refused_with_the_general_message_of_kafka() -> None:
    login = new_login()
    login.choose("PLAIN", 0)
    with pytest.raises(
        SaslAuthenticationFailed,
        match=r"^Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism PLAIN$",
    ):
        login.take(b"x", 0)


def test_sasl_handshake_with_an_unknown_mechanism_is_refused() -> None:
    login = new_login()
    with pytest.raises(Unsupported, match="Unsupported SASL mechanism GSSAPI"):
        login.choose("GSSAPI", 0)
    assert login.state is LoginState.FAILED


@pytest.mark.parametrize("first", ["token", "two handshakes"])
def test_sasl_steps_in_another_order_are_illegal(first: str) -> None:
    login = new_login()
    if first == "two handshakes":
        login.choose("PLAIN", 0)
    with pytest.raises(IllegalSaslState):
        login.take(ALICE, 0) if first == "token" else login.choose("PLAIN", 0)


def test_sasl_token_after_the_login_is_illegal_with_the_message_of_kafka() -> None:
    with pytest.raises(IllegalSaslState, match="after successful authentication"):
        logged_in().take(ALICE, 0)


def test_sasl_session_ends_unless_the_client_reauthenticates() -> None:
    login = logged_in(SESSION_MS)
    assert (login.is_over(SESSION_MS - 1), login.is_over(SESSION_MS)) == (False, True)
    login.choose("PLAIN", SESSION_MS - 10)
    assert login.is_complete
    assert login.take(ALICE, SESSION_MS - 5) == (b"", SESSION_MS)
    assert not login.is_over(SESSION_MS)
    assert login.is_over(2 * SESSION_MS - 5)


def test_sasl_reauthentication_within_a_second_is_illegal() -> None:
    login = logged_in(SESSION_MS)
    with pytest.raises(IllegalSaslState):
        login.choose("PLAIN", AGAIN_AFTER_MS - 1)
    assert login.is_complete


@pytest.mark.parametrize(
    ("mechanism", "token", "says"),
    [
        ("OTHER", ALICE, "Unable to change SASL mechanisms during re-authentication"),
        ("PLAIN", BOB, "Cannot change principals during re-authentication from User:alice"),
        ("PLAIN", b"x", "Authentication failed during re-authentication"),
        ("PLAIN", WRONG, "Invalid username or password"),
    ],
)
def test_sasl_reauthentication_with_another_mechanism_principal_or_password_fails(
    mechanism: str, token: bytes, says: str
) -> None:
    login = logged_in(SESSION_MS)

    def again() -> None:
        login.choose(mechanism, AGAIN_AFTER_MS)
        login.take(token, AGAIN_AFTER_MS)

    with pytest.raises(SaslAuthenticationFailed, match=says):
        again()
    assert not login.is_complete


def test_sasl_login_state_table_has_a_row_for_each_state() -> None:
    assert set(ALLOWED) == set(LoginState)


STEPS = st.one_of(
    st.sampled_from(["PLAIN", "OTHER", "GSSAPI"]),
    st.sampled_from([ALICE, BOB, WRONG, b"", b"\0\0"]),
)


@given(st.lists(st.tuples(STEPS, st.integers(0, 3_000)), max_size=12))
def test_sasl_login_with_any_steps_keeps_its_first_principal_or_fails(
    steps: list[tuple[str | bytes, int]],
) -> None:
    login, now_ms, first = new_login(SESSION_MS), 0, None
    for step, passed_ms in steps:
        now_ms += passed_ms
        try:
            if isinstance(step, str):
                login.choose(step, now_ms)
            else:
                login.take(step, now_ms)
        except KafkaError:
            pass
        first = first or login.principal
        assert login.principal in (None, first)
        assert login.is_complete == (first is not None and login.state is not LoginState.FAILED)

"""Test OAUTHBEARER as defined in RFC 7628, and the reading of a token's claims."""

import base64
import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.security.oauthbearer import (
    ALLOWED,
    OauthbearerClient,
    OAuthState,
    Token,
    check_extensions,
    claims_of,
    expiry_of,
)
from oncelog.wire.errors import IllegalSaslState, SaslAuthenticationFailed
from oncelog.wire.security.secret import Secret


def client(value: str = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", **extensions: str):
    return OauthbearerClient(Token(Secret(value)), tuple(extensions.items()))


def test_oauthbearer_first_message_follows_the_example_of_rfc_7628():
    # RFC 7628, section 4.1, without the authorization id and with its host and port as extensions
    sent = client(host="server.example.com", port="143").start()
    assert sent == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01"
        b"host=server.example.com\x01port=143\x01\x01"
    )
    assert client("token").start() == b"n,,\x01auth=Bearer token\x01\x01"


def test_oauthbearer_empty_server_message_means_success():
    oauth = client()
    oauth.start()
    assert oauth.respond(b"") is None
    assert oauth.state is OAuthState.DONE


def test_oauthbearer_refusal_is_acknowledged_and_raised_with_its_reason():
    oauth = client()
    oauth.start()
    said = {"status": "invalid_token", "scope": "produce"}  # RFC 7628, section 4.3
    assert oauth.respond(json.dumps(said).encode()) == b"\x01"
    assert oauth.refusal == "the broker refused the token (status=invalid_token, scope=produce)"
    with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        oauth.respond(b"")


@pytest.mark.parametrize("value", ["", "a b", "a\x01b", "tök", "a\n", "=a", "Bearer x"])
def test_oauthbearer_malformed_token_is_never_sent(value):
    with pytest.raises(SaslAuthenticationFailed, match="not a bearer token") as failure:
        client(value).start()
    assert not value or value not in str(failure.value).replace("bearer token", "")


@pytest.mark.parametrize(("now", "then"), list(product(OAuthState, OAuthState)))
def test_oauthbearer_client_changes_state_only_along_allowed_transitions(now, then):
    oauth = client()
    oauth.state = now
    if then in ALLOWED[now]:
        oauth._move(then)
    else:
        with pytest.raises(IllegalSaslState):
            oauth._move(then)


@given(st.binary(min_size=1, max_size=100))
def test_oauthbearer_server_challenge_is_treated_as_a_refusal(challenge):
    oauth = client()
    oauth.start()
    assert oauth.respond(challenge) == b"\x01"
    assert oauth.refusal.startswith("the broker refused the token")


def test_oauthbearer_extension_with_an_invalid_name_or_value_is_refused():
    assert check_extensions({"traceId": "1-2"}) == (("traceId", "1-2"),)
    for name, value in (("auth", "x"), ("a-b", "x"), ("", "x"), ("a", "\x01"), ("a", "")):
        with pytest.raises(ValueError, match="extension"):
            check_extensions({name: value})


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("token", "expires_s"),
    [
        (f"{part({})}.{part({'exp': 1700000000})}.c2ln", 1700000000.0),
        (f"{part({})}.{part({'exp': 'soon'})}.c2ln", None),
        (f"{part({})}.{part({})}.c2ln", None),
        (f"{part({})}.{part([1])}.c2ln", None),
        ("an opaque token", None),
        ("a.b.c", None),
    ],
)
def test_oauthbearer_token_expiry_is_read_from_its_claims(token, expires_s):
    assert expiry_of(token) == expires_s


@given(st.text(max_size=60))
def test_oauthbearer_token_of_any_text_has_a_dictionary_of_claims(token):
    assert isinstance(claims_of(token), dict)

"""Test accepted and refused OAUTHBEARER tokens, and the keys that verify them."""

import asyncio
import base64
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from oncelog.client.security.oauthbearer import OauthbearerClient, Token
from oncelog.deploy.cluster.ports import free_ports
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.config.listener_keys import ListenerSettings
from oncelog.node.listener.sasl import tokens
from oncelog.node.listener.sasl.mechanisms import token_verifiers
from oncelog.node.listener.sasl.tokens import TokenVerifier, read_keys
from oncelog.wire.errors import IllegalSaslState, InvalidConfig, SaslAuthenticationFailed
from oncelog.wire.security.oauthbearer_server import (
    ALLOWED,
    REFUSAL,
    OauthbearerServer,
    OauthState,
    TokenIdentity,
)
from oncelog.wire.security.sasl import FailedLogin
from oncelog.wire.security.secret import Secret

from ...own_broker import OwnBroker
from ..tls.certificates import LOG

JWT: Any = jwt  # its stubs do not allow a missing key
SHARED = "a secret of thirty-two bytes, or more"
NOW_S = 1_800_000_000
RSA = rsa.generate_private_key(65537, 2048)
EC, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
CLAIMS: dict[str, Any] = {
    "sub": "alice",
    "aud": "kafka",
    "iss": "us",
    "iat": NOW_S,
    "exp": NOW_S + 60,
}


def jwks() -> str:
    rsa_key = json.loads(RSAAlgorithm.to_jwk(RSA.public_key()))
    ec_key = json.loads(ECAlgorithm.to_jwk(EC.public_key()))
    shared = {
        "kty": "oct",
        "k": base64.urlsafe_b64encode(SHARED.encode()).decode(),
        "kid": "shared",
        "alg": "HS256",
    }
    return json.dumps(
        {"keys": [rsa_key | {"kid": "r", "alg": "PS384"}, ec_key | {"kid": "e"}, shared]}
    )


def token(changes: Mapping[str, Any] = {}, *, kid: str = "e", key: Any = EC, alg: str = "ES256"):
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key, algorithm=alg, headers={"kid": kid})


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "jwks.json"
    file.write_text(jwks())
    return file


def verifier(keys: Path, **settings: Any) -> TokenVerifier:
    usual: dict[str, Any] = {
        "sasl_oauthbearer_jwks_endpoint_url": f"file://{keys}",
        "sasl_oauthbearer_expected_audience": ("kafka",),
        "sasl_oauthbearer_expected_issuer": "us",
    }
    return TokenVerifier(ListenerSettings(**usual | settings), lambda: NOW_S, LOG)


def test_oauth_token_signed_by_a_known_key_names_its_principal(keys: Path) -> None:
    expected = TokenIdentity("alice", (60 + 30) * 1000)
    assert verifier(keys).verify(token()) == expected
    assert verifier(keys).verify(token(kid="r", key=RSA, alg="PS384")) == expected
    named = verifier(keys, sasl_oauthbearer_sub_claim_name="client_id")
    assert named.verify(token({"client_id": "job"})).name == "job"


BAD = {  # signatures differ between runs, so tests are named by the defect
    "expired": token({"exp": NOW_S - 30}),
    "no end": token({"exp": None}),
    "not yet": token({"nbf": NOW_S + 31}),
    "issued later": token({"iat": NOW_S + 31}),
    "no time of its issue": token({"iat": None}),
    "no number as the time of its issue": token({"iat": "today", "nbf": NOW_S}),
    "another audience": token({"aud": "another"}),
    "no audience": token({"aud": None}),
    "another issuer": token({"iss": "them"}),
    "no subject": token({"sub": None}),
    "empty subject": token({"sub": ""}),
    "another key": token(key=OTHER),
    "unknown key": token(kid="unknown"),
    "shared secret": token(kid="shared", key=SHARED, alg="HS256"),
    "key of another kind": token(kid="r"),
    "no algorithm": JWT.encode(CLAIMS, None, algorithm="none", headers={"kid": "e"}),
    "damaged": token() + "x",
    "no token": "abc",
    "no number as its end": token({"exp": math.inf}),
    "an end beyond all times": token({"exp": 1e300}),
    "an end of 400 digits": token({"exp": 10**400}),
    "a beginning before all times": token({"nbf": -(10**400)}),
    "empty": "",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_oauth_token_that_is_invalid_is_refused(keys: Path, bad: str) -> None:
    with pytest.raises(FailedLogin):
        verifier(keys).verify(bad)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("another audience", "Audience"),
        ("expired", "has expired"),
        ("no time of its issue", "iat"),
        ("unknown key", "of the JWKS"),
    ],
)
def test_oauth_token_refusal_is_logged_with_its_reason_and_without_the_token(
    keys: Path, bad: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(FailedLogin):
        verifier(keys).verify(BAD[bad])
    assert why in caplog.text and BAD[bad] not in caplog.text


@given(st.text(max_size=80))
def test_oauth_token_of_arbitrary_text_is_refused(tmp_path_factory: Any, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(jwks())
    with pytest.raises(FailedLogin):
        verifier(file).verify(text)


def test_oauth_key_file_that_changes_is_read_again(keys: Path) -> None:
    found = verifier(keys)
    keys.write_text('{"keys": []} broken')
    found.refresh()
    assert found.verify(token()).name == "alice"  # the old keys stay
    new = json.loads(ECAlgorithm.to_jwk(OTHER.public_key())) | {"kid": "e"}
    keys.write_text(json.dumps({"keys": [new]}))
    found.refresh()
    assert found.verify(token(key=OTHER)).name == "alice"


class Provider:
    """An HTTP server for keys, which sends its next answer to each client, in pieces."""

    def __init__(self, *answers: bytes, pause_s: float = 0.0) -> None:
        self.answers, self._pause_s = list(answers), pause_s
        self._is_over = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        answer = self.answers.pop(0)
        step = 10 if self._pause_s else len(answer)
        for begin in range(0, len(answer), step):
            writer.write(answer[begin : begin + step])
            if self._is_over.is_set():
                break
            await asyncio.sleep(self._pause_s)
        writer.close()
        await writer.wait_closed()

    @asynccontextmanager
    async def verifier(self) -> AsyncIterator[TokenVerifier]:
        async with await asyncio.start_server(self.answer, "127.0.0.1", 0) as provider:
            port = provider.sockets[0].getsockname()[1]
            settings = ListenerSettings(
                sasl_oauthbearer_jwks_endpoint_url=f"http://127.0.0.1:{port}/keys",
                sasl_oauthbearer_expected_audience=("kafka",),
                sasl_oauthbearer_expected_issuer="us",
            )
            verifier = TokenVerifier(settings, lambda: NOW_S, LOG)
            yield verifier
            self._is_over.set()
            if verifier.fetching is not None:
                await asyncio.to_thread(verifier.fetching.join)


HTTP = b"HTTP/1.0 200 OK\r\n\r\n"


async def test_oauth_key_address_that_fails_is_requested_again_soon(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "AGAIN_S", 0.0)
    provider = Provider(b"no HTTP at all\r\n\r\n", HTTP + keys.read_bytes())
    async with provider.verifier() as found:
        await asyncio.to_thread(found.refresh)
        with pytest.raises(FailedLogin):
            found.verify(token())
        await asyncio.to_thread(found.refresh)
        assert found.verify(token()).name == "alice"
        await asyncio.to_thread(found.refresh)  # is not due
        assert provider.answers == []


async def test_oauth_keys_are_fetched_again_for_an_unknown_key_at_a_limited_rate(
    keys: Path,
) -> None:
    new = json.loads(ECAlgorithm.to_jwk(OTHER.public_key())) | {"kid": "new"}
    both = json.dumps({"keys": [new, *json.loads(keys.read_text())["keys"]]}).encode()
    provider = Provider(HTTP + keys.read_bytes(), HTTP + both, b"not asked")
    async with provider.verifier() as found:
        await asyncio.to_thread(found.refresh)
        with pytest.raises(FailedLogin):
            found.verify(token(kid="new", key=OTHER))
        await asyncio.to_thread(found.refresh)
        assert found.verify(token(kid="new", key=OTHER)).name == "alice"
        with pytest.raises(FailedLogin):
            found.verify(token(kid="unknown"))
        await asyncio.to_thread(found.refresh)
        assert provider.answers == [b"not asked"]


async def test_oauth_key_address_that_answers_slowly_is_abandoned_at_its_deadline(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", 0.5)
    provider = Provider(HTTP + keys.read_bytes(), pause_s=0.1)  # takes some ten seconds
    async with provider.verifier() as found:
        began_s = time.monotonic()
        await asyncio.to_thread(found.refresh)
        assert time.monotonic() - began_s < 5
        with pytest.raises(FailedLogin):
            found.verify(token())


NO_AUDIENCE: dict[str, Any] = {"sasl_oauthbearer_expected_audience": ()}
NO_ISSUER: dict[str, Any] = {"sasl_oauthbearer_expected_issuer": ""}
ANY_AUDIENCE: dict[str, Any] = {"sasl_oauthbearer_allow_unverified_audience": True}
ANY_ISSUER: dict[str, Any] = {"sasl_oauthbearer_allow_unverified_issuer": True}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sasl_oauthbearer_jwks_endpoint_url": ""}, ["needs sasl.oauthbearer.jwks.endpoint.url"]),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///no.json"}, ["cannot be read"]),
        (NO_AUDIENCE, ["needs sasl.oauthbearer.expected.audience", "unverified.audience=true"]),
        (NO_ISSUER, ["needs sasl.oauthbearer.expected.issuer", "unverified.issuer=true"]),
        (NO_AUDIENCE | NO_ISSUER, ["expected.audience", "expected.issuer"]),
        (NO_AUDIENCE | ANY_ISSUER, ["expected.audience"]),
        (NO_ISSUER | ANY_AUDIENCE, ["expected.issuer"]),
    ],
)
def test_oauth_settings_that_would_accept_any_token_are_refused(
    keys: Path, settings: dict[str, Any], says: list[str]
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        verifier(keys, **settings)
    assert [text for text in says if text not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("settings", "name", "claim", "refused"),
    [
        (NO_AUDIENCE | ANY_AUDIENCE, "audience", "aud", {"iss": "them"}),
        (NO_ISSUER | ANY_ISSUER, "issuer", "iss", {"aud": "another"}),
    ],
)
def test_oauth_opt_out_accepts_any_value_of_its_claim_and_is_logged(
    keys: Path,
    settings: dict[str, Any],
    name: str,
    claim: str,
    refused: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        found = verifier(keys, **settings)
    (warning,) = caplog.messages
    assert f"sasl.oauthbearer.allow.unverified.{name}" in warning
    assert [found.verify(token({claim: value})).name for value in ("other", None)] == ["alice"] * 2
    with pytest.raises(FailedLogin):
        found.verify(token(refused))


def test_oauth_opt_out_with_expected_values_still_refuses_other_values(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = verifier(keys, **ANY_AUDIENCE, **ANY_ISSUER)
    assert caplog.messages == []
    for changes in ({"aud": "another"}, {"aud": None}, {"iss": "them"}, {"iss": None}):
        with pytest.raises(FailedLogin):
            found.verify(token(changes))


def test_oauth_opt_out_of_a_listener_does_not_apply_to_another(keys: Path) -> None:
    properties = {
        "node.id": "1",
        "cluster.id": "c",
        "log.dirs": "/d",
        "oncelog.voters": "1",
        "oncelog.peer.directory": "/p",
        "listeners": "A://127.0.0.1:1024,B://127.0.0.1:1025",
        "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.a.sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    with pytest.raises(InvalidConfig, match=r"expected\.issuer"):
        token_verifiers(BrokerConfig.from_properties(properties), time.time, LOG)
    properties["listener.name.b.sasl.oauthbearer.expected.issuer"] = "us"
    found = token_verifiers(BrokerConfig.from_properties(properties), lambda: NOW_S, LOG)
    stranger = token({"iss": "them"})
    assert found["A"].verify(stranger).name == "alice"
    with pytest.raises(FailedLogin):
        found["B"].verify(stranger)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys": 1}', b"x" * (1024 * 1024 + 1)], ids=map(str, range(5))
)
def test_oauth_keys_that_are_malformed_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidConfig):
        read_keys(data)


def accepting(text: str) -> TokenIdentity:
    if text != "good":
        raise FailedLogin
    return TokenIdentity("alice", 5)


def test_oauthbearer_server_accepts_a_good_token_and_explains_a_refusal() -> None:
    server, client = OauthbearerServer(accepting), OauthbearerClient(Token(Secret("good")))
    assert client.respond(server.respond(client.start())) is None
    assert (server.is_done, server.username, server.lifetime_ms) == (True, "alice", 5)
    server, client = OauthbearerServer(accepting), OauthbearerClient(Token(Secret("bad")))
    confirmed = client.respond(server.respond(client.start()))
    assert confirmed is not None
    with pytest.raises(FailedLogin, match="invalid_token"):
        server.respond(confirmed)
    with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        client.respond(b"")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01auth=Bearer good",
        b"n,,\x01auth=Basic good\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,a=bob,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"\xff",
    ],
)
def test_oauthbearer_message_that_is_malformed_or_for_another_user_is_refused(
    message: bytes,
) -> None:
    server = OauthbearerServer(accepting)
    with pytest.raises(FailedLogin):
        server.respond(message)
    with pytest.raises(IllegalSaslState):
        server.respond(message)
    assert not server.is_done


def test_oauthbearer_extensions_and_own_authorization_id_are_accepted() -> None:
    server = OauthbearerServer(accepting)
    message = b"n,a=alice,\x01auth=Bearer good\x01traceId=1 2\x01\x01"
    assert server.respond(message) == b"" and server.is_done


def test_oauthbearer_server_state_table_has_a_row_for_each_state() -> None:
    assert set(ALLOWED) == set(OauthState)
    assert json.loads(REFUSAL) == {"status": "invalid_token"}


@pytest.mark.in_turn
async def test_librdkafka_client_with_tokens_reauthenticates_before_each_expiry(
    tmp_path: Path, keys: Path
) -> None:
    (port,) = free_ports(1)
    settings = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "us",
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    given_tokens: list[float] = []

    def new_token(_config: str) -> tuple[str, float]:
        ends_s = time.time() + 4
        given_tokens.append(ends_s)
        return token({"iat": int(ends_s) - 60, "exp": ends_s}), ends_s

    def produced() -> list[Any]:
        errors: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": new_token,
            }
        )
        ends_s = time.monotonic() + 6
        while time.monotonic() < ends_s:
            producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error))
            producer.flush(20)
            producer.poll(0.2)
        return errors

    broker = OwnBroker(tmp_path, settings=settings)
    await broker.start()
    try:
        await broker.create("orders", 1)
        errors = await asyncio.to_thread(produced)
        assert errors and set(errors) == {None}
        assert len(given_tokens) > 1
    finally:
        await broker.stop()

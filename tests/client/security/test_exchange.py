"""Test the requests of a SASL exchange, and how the client reacts to each answer."""

from types import SimpleNamespace

import pytest

from oncelog.client.security.exchange import Ask, Derive, Exchange, PlainClient, sasl_exchange
from oncelog.client.security.oauthbearer import OauthbearerClient, Token
from oncelog.client.security.scram import ScramClient
from oncelog.wire.errors import (
    IllegalSaslState,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from oncelog.wire.security.secret import Secret

from .test_scram import Server

PASSWORD = Secret("geheim")
BROKER, WHO = "b:9093", "user alice"


def handshake(code: int = 0, *mechanisms: str) -> SimpleNamespace:
    return SimpleNamespace(error_code=code, mechanisms=mechanisms)


def accepted(data: bytes = b"", lifetime_ms: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        error_code=0, error_message=None, auth_bytes=data, session_lifetime=lifetime_ms
    )


def refused(message: str | None, code: int = 58) -> SimpleNamespace:
    return SimpleNamespace(error_code=code, error_message=message, auth_bytes=b"")


def plain() -> Exchange:
    return sasl_exchange(PlainClient("alice", PASSWORD), BROKER, WHO)


def end_of(exchange: Exchange, answer: object) -> int:
    with pytest.raises(StopIteration) as end:
        exchange.send(answer)
    return end.value.value


def test_sasl_plain_exchange_sends_one_authenticate_request():
    exchange = plain()
    assert next(exchange) == Ask(17, {"mechanism": "PLAIN"})
    assert exchange.send(handshake()) == Ask(36, {"auth_bytes": b"\0alice\0geheim"})
    assert end_of(exchange, accepted(lifetime_ms=5_000)) == 5_000


def test_sasl_scram_exchange_sends_two_authenticate_requests_around_a_key_derivation():
    scram = ScramClient("SCRAM-SHA-512", "alice", PASSWORD, "nonce")
    server = Server("SCRAM-SHA-512", "geheim", b"salt", 4096)
    exchange = sasl_exchange(scram, BROKER, WHO)
    next(exchange)
    first = exchange.send(handshake())
    assert isinstance(first, Ask)
    wanted = exchange.send(accepted(server.first(first.values["auth_bytes"])))
    assert isinstance(wanted, Derive)
    final = exchange.send(wanted.compute())
    assert isinstance(final, Ask)
    assert end_of(exchange, accepted(server.final(final.values["auth_bytes"]), 60_000)) == 60_000


def test_sasl_scram_server_that_does_not_know_the_password_is_refused():
    exchange = sasl_exchange(ScramClient("SCRAM-SHA-256", "a", PASSWORD, "n"), BROKER, WHO)
    next(exchange)
    exchange.send(handshake())
    wanted = exchange.send(accepted(b"r=nx,s=c2FsdA==,i=4096"))
    assert isinstance(wanted, Derive)
    exchange.send(wanted.compute())
    with pytest.raises(SaslAuthenticationFailed, match=r"b:9093: .*does not know the password"):
        exchange.send(accepted(b"v=AAAA"))


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (handshake(33, "PLAIN", "SCRAM-SHA-512"), UnsupportedSaslMechanism,
         "does not offer PLAIN; it offers: PLAIN, SCRAM-SHA-512"),
        (handshake(34), IllegalSaslState, "does not authenticate by SASL: set security.protocol"),
        (handshake(35), KafkaError, "version"),
    ],
)  # fmt: skip
def test_sasl_handshake_that_is_refused_raises_an_error_that_is_not_retriable(answer, kind, words):
    exchange = plain()
    next(exchange)
    with pytest.raises(kind, match=words) as failure:
        exchange.send(answer)
    assert not failure.value.retriable


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Authentication failed: Invalid username or password", "Invalid username or password"),
        (None, "b:9093 refused user alice by PLAIN. The user is unknown"),
    ],
)
def test_sasl_password_that_is_refused_raises_an_error_with_advice(said, words):
    exchange = plain()
    next(exchange)
    exchange.send(handshake())
    with pytest.raises(SaslAuthenticationFailed, match=words) as failure:
        exchange.send(refused(said))
    assert "geheim" not in str(failure.value)
    assert "check sasl.username and sasl.password" in str(failure.value)
    assert not failure.value.retriable


def test_sasl_token_that_is_refused_raises_the_reason_of_the_first_answer():
    exchange = sasl_exchange(OauthbearerClient(Token(Secret("to.ke.n"))), BROKER, WHO)
    next(exchange)
    exchange.send(handshake())
    last = exchange.send(accepted(b'{"status":"invalid_token"}'))
    assert last == Ask(36, {"auth_bytes": b"\x01"})
    with pytest.raises(SaslAuthenticationFailed, match=r"status=invalid_token.*expired") as failure:
        exchange.send(refused("authentication failed"))
    assert "to.ke.n" not in str(failure.value)


def test_sasl_exchange_with_endless_challenges_is_refused():
    class Endless(PlainClient):
        def respond(self, challenge: bytes) -> bytes:  # type: ignore[override]
            return b"more"

    exchange = sasl_exchange(Endless("a", PASSWORD), BROKER, WHO)
    next(exchange)
    exchange.send(handshake())
    with pytest.raises(SaslAuthenticationFailed, match="comes to no end"):
        for _ in range(100):
            exchange.send(accepted(b"?"))


def test_sasl_plain_answer_with_data_is_refused():
    exchange = plain()
    next(exchange)
    exchange.send(handshake())
    with pytest.raises(SaslAuthenticationFailed):
        exchange.send(accepted(b"?"))

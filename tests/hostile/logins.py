"""Attacks on logins and on TLS, by clients that are not authenticated and send any bytes."""

import base64
import contextlib
import json
import logging
import random
import ssl
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from oncelog.node.config.listener_keys import ListenerSettings
from oncelog.node.listener.sasl.login import Login
from oncelog.node.listener.sasl.tokens import TokenVerifier
from oncelog.node.listener.tls.channel import NotTls, TlsChannel
from oncelog.node.listener.tls.credentials import TlsCredentials
from oncelog.wire.errors import KafkaError
from oncelog.wire.security.oauthbearer_server import OauthbearerServer
from oncelog.wire.security.sasl import PlainServer
from oncelog.wire.security.scram_server import HASHES, ScramCredential, ScramServer
from oncelog.wire.security.secret import Secret

from ..node.listener.tls.certificates import Certificates
from .decoders import Errors, Input
from .mutations import mutated

LOG = logging.getLogger("oncelog.test")
NUMBERS = (0, -1, 2**63, 1e308, float("inf"), float("nan"), True, None, "9", [], {})
HEADERS = (
    b'{"alg":"ES256","kid":"e"}',
    b'{"alg":["ES256"],"kid":"e"}',
    b'{"alg":"HS256","kid":"e"}',
    b'{"alg":"none"}',
    b'{"alg":"ES256","kid":"e","crit":["b64"]}',
    b'{"alg":"ES256","kid":"e","b64":false}',
    b'{"alg":"ES512","kid":"e","a":1e999}',
    b'{"kid":{"a":1}}',
)
KEY = ec.generate_private_key(ec.SECP256R1())


def write_keys(folder: Path) -> None:
    """Write a CA, certificates, and the JWKS that verifies the tokens."""
    Certificates(folder)
    key = json.loads(ECAlgorithm.to_jwk(KEY.public_key())) | {"kid": "e"}
    (folder / "jwks.json").write_text(json.dumps({"keys": [key]}))


class Logins:
    """The state machine of a login with all mechanisms. Handshakes and tokens come in any order."""

    name, share = "logins", 0.08
    errors: Errors = (KafkaError,)
    MECHANISMS = (b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512", b"OAUTHBEARER")

    def __init__(self, folder: Path) -> None:
        settings = ListenerSettings(
            sasl_oauthbearer_jwks_endpoint_url=f"file://{folder / 'jwks.json'}",
            sasl_oauthbearer_expected_audience=("kafka",),
            sasl_oauthbearer_expected_issuer="x",
        )
        verifier = TokenVerifier(settings, time.time, LOG)
        keys = {name: ScramCredential(b"salt", bytes(64), bytes(64), 4096) for name in ("a", "b")}
        self._mechanisms = {
            "PLAIN": lambda: PlainServer({"a": Secret("p"), "é": Secret("ß")}),
            "OAUTHBEARER": lambda: OauthbearerServer(verifier.verify),
            **{name: (lambda name=name: ScramServer(name, "n", keys.get, b"s")) for name in HASHES},
        }

    def make(self, rng: random.Random) -> Input:
        mechanism = rng.choice(self.MECHANISMS)
        token = {b"PLAIN": b"\0a\0p", b"OAUTHBEARER": b""}.get(mechanism, b"n,a=a,n=a,r=abc")
        tokens = [token or b"n,a=a,\x01auth=Bearer " + _signed(rng) + b"\x01\x01"]
        if mechanism.startswith(b"SCRAM"):
            tokens.append(b"c=biws,r=abcn,p=" + base64.b64encode(rng.randbytes(32)))
        steps = [b"+" + mechanism, *(b"." + each for each in tokens)] * rng.choice((1, 1, 2))
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(steps))
            steps[at] = steps[at][:1] + mutated(rng, steps[at][1:])
        if rng.random() < 0.3:
            rng.shuffle(steps)
        return tuple(steps)

    def feed(self, data: Input) -> None:
        """Take each step, a handshake (`+`) or a token (`.`), and continue after a refusal.

        Raise AssertionError if a later step changes the principal.
        """
        login, now_ms = Login(self._mechanisms, 3_600_000), 0
        for step in data:
            now_ms += 700
            was_in = login.principal
            try:
                if step[:1] == b"+":
                    login.choose(step[1:].decode(errors="replace"), now_ms)
                else:
                    login.take(step[1:], now_ms)
            except KafkaError:
                continue
            assert was_in in (None, login.principal), "another principal than before"


def _signed(rng: random.Random) -> bytes:
    """Return a validly signed token with strange claims, or a token put together at random."""
    deep = rng.choice((1, 60, 3_000))
    claims: dict[str, Any] = {"sub": rng.choice(("a", "", 7, None, "\ud800")), "aud": "kafka"}
    claims |= {"exp": rng.choice((time.time() + 60, *NUMBERS)), "iss": rng.choice(("x", 1, None))}
    claims |= {"nbf": rng.choice(NUMBERS)} if rng.random() < 0.3 else {}
    claims["iat"] = time.time() if rng.random() < 0.9 else rng.choice(NUMBERS)
    claims["aud"] = rng.choice(("kafka", ["kafka"], [1], {}, None, ["kafka", {}]))
    body = rng.choice((json.dumps(claims).encode(), b"[" * deep + b"]" * deep, b"\xff", b"1"))
    if rng.random() < 0.1:
        return jwt.PyJWS().encode(body, KEY, "ES256", headers={"kid": "e"}).encode()
    header = rng.choice((*HEADERS, b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep))
    return b".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, body, rng.randbytes(64))
    )


class Tls:
    """The filter of a TLS listener, with TLS messages that are cut and changed."""

    name, share = "tls", 0.01
    errors: Errors = (ssl.SSLError, NotTls)

    def __init__(self, folder: Path) -> None:
        settings = ListenerSettings(
            ssl_keystore_location=str(folder / "broker.pem"),
            ssl_truststore_location=str(folder / "ca.pem"),
            ssl_client_auth="requested",
        )
        self._context = TlsCredentials("L", settings, LOG).context
        self._client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        self._client.load_cert_chain(folder / "alice.pem")
        self._buffer = memoryview(bytearray(65_536))

    def make(self, rng: random.Random) -> Input:
        """Return a damaged ClientHello, or a random plan by which `feed` damages a connection."""
        if rng.random() < 0.1:
            return (b"", rng.randbytes(8))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        peer = self._client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.do_handshake()
        hello = mutated(rng, outgoing.read())
        cut = rng.randrange(len(hello) + 1)
        return hello[:cut], hello[cut:], rng.randbytes(rng.randrange(90))

    def feed(self, data: Input) -> None:
        """Pass the input through the filter, which may raise SSLError or NotTls."""
        channel = TlsChannel(self._context)
        if data[0] or len(data) == 3:
            for piece in data:
                self._take(channel, piece)
            channel.end()
            return
        rng = random.Random(data[1])
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        peer = self._client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        damaged = rng.randrange(6)  # the damaged flight: of the handshake, or after it
        for flight in range(6):
            with contextlib.suppress(ssl.SSLWantReadError):
                if flight < 3:
                    peer.do_handshake()
                else:
                    peer.write(rng.randbytes(rng.choice((1, 100, 20_000))))
            sent = outgoing.read()
            self._take(channel, mutated(rng, sent) if flight == damaged else sent)
            incoming.write(channel.outgoing())
        channel.queue([bytes(100_000)])
        while channel.unsent_bytes:
            channel.encrypt(channel.next_slice())
        channel.certificate()
        channel.end()

    def _take(self, channel: TlsChannel, piece: bytes) -> None:
        channel.receive(piece)
        while not channel.is_established:
            if not channel.shake_hands() and not channel.has_more:
                return
        while channel.read_into(self._buffer) or channel.has_more:
            if channel.broken_by or channel.has_ended:
                return

"""Test that a token from a function or an HTTP endpoint is kept and renewed in time."""

import asyncio
import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from oncelog.client.failures import SslAuthenticationFailed
from oncelog.client.security import tokens
from oncelog.client.security.config import TokenConfig
from oncelog.client.security.oauthbearer import Token
from oncelog.client.security.tokens import TokenSource, given_token, request_token
from oncelog.wire.errors import KafkaError, NetworkException, SaslAuthenticationFailed
from oncelog.wire.security.secret import Secret

from ...present import present


class TokenServer(ThreadingHTTPServer):
    """A server of OAuth tokens with scripted answers, which records its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answer: tuple[int, Any, dict[str, str]] = (200, {"access_token": "opaque"}, {})
        self.asked: list[tuple[str, str, dict[str, list[str]]]] = []
        self.delay_s = 0.0
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class _Answering(BaseHTTPRequestHandler):
    server: TokenServer  # type: ignore[assignment]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.path, self.headers["Authorization"], parse_qs(body)))
        time.sleep(self.server.delay_s)
        status, answer, headers = self.server.answer
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        with contextlib.suppress(ConnectionError):  # the client may have stopped waiting
            self._send(status, headers, content)

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[TokenServer]:
    made = TokenServer()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def config(server: TokenServer, **options: Any) -> TokenConfig:
    secret = Secret("ge:heim/+")
    return TokenConfig(url=server.url, client_id="app", client_secret=secret, **options)


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_token_endpoint_request_has_the_client_credentials_grant_of_rfc_6749(server):
    server.answer = (200, {"access_token": "a.b.c", "expires_in": 60, "token_type": "Bearer"}, {})
    before_s = time.time()
    token = request_token(config(server, scope="read write"))
    assert token.value.reveal() == "a.b.c"
    assert before_s + 60 <= present(token.expires_s) <= time.time() + 60
    request_token(config(server, is_urlencoded=True))
    form = {"grant_type": ["client_credentials"]}
    assert server.asked == [
        ("/token", basic("app:ge:heim/+"), {**form, "scope": ["read write"]}),
        ("/token", basic("app:ge%3Aheim%2F%2B"), form),
    ]


@pytest.mark.parametrize(
    ("status", "answer", "kind", "words"),
    [
        (401, {"error": "invalid_client", "error_description": "no"}, SaslAuthenticationFailed,
         r"answered 401 \(invalid_client: no\) to client id app: check sasl.oauthbearer.client"),
        (400, b"<html>", SaslAuthenticationFailed, "answered 400 to client id app"),
        (302, {}, SaslAuthenticationFailed, "answered 302"),
        (200, {"token": "x"}, SaslAuthenticationFailed, "without an access_token"),
        (200, [1], SaslAuthenticationFailed, "without an access_token"),
        (503, {}, NetworkException, "answered 503"),
        (429, {}, NetworkException, "answered 429"),
    ],
)  # fmt: skip
def test_token_endpoint_answer_without_a_token_raises(server, status, answer, kind, words):
    server.answer = (status, answer, {"Location": server.url})
    with pytest.raises(kind, match=words) as failure:
        request_token(config(server))
    assert "geheim" not in str(failure.value).replace(":", "").replace("/", "")
    assert len(server.asked) == 1, "a redirect would take the secret elsewhere"


def test_token_endpoint_without_an_answer_in_time_raises(server):
    server.delay_s = 0.5
    with pytest.raises(NetworkException, match="gave no answer"):
        request_token(config(server, read_timeout_ms=50))
    server.delay_s = 0.0
    closed = config(server)
    server.shutdown()
    server.socket.close()
    with pytest.raises(NetworkException, match="gave no answer"):
        request_token(closed)


def test_token_endpoint_over_tls_has_its_certificate_verified(server, tmp_path):
    trustme = pytest.importorskip("trustme")
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.url = server.url.replace("http:", "https:")
    trusting = config(server, ca_file=str(tmp_path / "ca.pem"))
    assert request_token(trusting).value.reveal() == "opaque"
    with pytest.raises(SslAuthenticationFailed, match=r"https\.ca\.location") as failure:
        request_token(config(server, ca_file=str(tmp_path / "other.pem")))
    assert not failure.value.retriable
    with pytest.raises(ValueError, match=r"https\.ca\.location: .* cannot be read"):
        request_token(config(server, ca_file=str(tmp_path / "none.pem")))


async def test_token_is_requested_once_and_again_before_it_expires(monkeypatch):
    given: list[str] = []
    now_s = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now_s)

    def provider() -> tuple[str, float]:
        assert threading.current_thread() is not threading.main_thread()
        given.append("token")
        return f"token{len(given)}", now_s + 100

    source = TokenSource(TokenConfig(provider=provider))
    same = await asyncio.gather(*(source.token() for _ in range(5)))
    assert {t.value.reveal() for t in same} == {"token1"}
    now_s += 79
    assert (await source.token()).value.reveal() == "token1"
    now_s += 2
    second = await source.token()
    assert second.value.reveal() == "token2"
    source.invalidate(same[0])  # the first one is in use no more
    assert await source.token() is second
    source.invalidate(second)
    assert (await source.token()).value.reveal() == "token3"


async def test_token_endpoint_unavailable_before_the_expiry_leaves_the_old_token_in_use(
    server, monkeypatch
):
    now_s = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now_s)
    server.answer = (200, {"access_token": "first", "expires_in": 100}, {})
    source = TokenSource(config(server))
    first = await source.token()
    server.answer = (503, {}, {})
    now_s += 85
    assert await source.token() is first
    assert await source.token() is first and len(server.asked) == 2, "not at every connection"
    now_s += 11
    with pytest.raises(NetworkException, match="answered 503"):
        await source.token()
    server.answer = (200, {"access_token": "second", "expires_in": 100}, {})
    assert (await source.token()).value.reveal() == "second"


async def test_token_provider_failing_before_the_expiry_leaves_the_old_token_in_use(monkeypatch):
    """Kafka's clients also use a token until its expiry, and request it again."""
    now_s = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now_s)
    asked: list[float] = []
    is_away = False

    def provider() -> tuple[str, float]:
        asked.append(now_s)
        if is_away:
            raise OSError("no route to the provider")
        return f"token{len(asked)}", now_s + 100

    source = TokenSource(TokenConfig(provider=provider))
    first = await source.token()
    is_away = True
    now_s += 85
    assert await source.token() is first
    assert await source.token() is first and len(asked) == 2
    now_s += 11
    with pytest.raises(SaslAuthenticationFailed, match="failed with OSError"):
        await source.token()
    is_away = False
    assert (await source.token()).value.reveal() == "token4"


async def test_token_wait_times_out_and_the_request_continues():
    calls: list[str] = []
    may_end = threading.Event()

    def provider() -> str:
        calls.append("asked")
        assert may_end.wait(10)
        return "token"

    source = TokenSource(TokenConfig(provider=provider))
    gone = asyncio.create_task(source.token())
    await asyncio.sleep(0)
    gone.cancel()
    for _ in range(3):
        with pytest.raises(NetworkException, match="token provider has given no token in 10"):
            await source.token(10)
    may_end.set()
    assert (await source.token(10_000)).value.reveal() == "token"
    assert calls == ["asked"], "threads that wait for the same would take all of the executor"


async def test_token_stays_in_use_while_a_slow_provider_makes_the_next_token(monkeypatch):
    monkeypatch.setattr(tokens, "SUCCESSOR_WAIT_S", 0.01)
    may_end = threading.Event()
    may_end.set()

    def provider() -> tuple[str, float]:
        assert may_end.wait(10)
        return "token", time.time() + 30

    source = TokenSource(TokenConfig(provider=provider))
    first = await source.token()
    may_end.clear()
    source._renew_s = 0.0  # the last fifth of its lifetime has begun
    assert await source.token() is first
    may_end.set()
    while await source.token() is first:
        await asyncio.sleep(0.001)


def test_token_endpoint_that_answers_slowly_is_cut_off_at_its_deadline(server):
    def drops(self: _Answering) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 ")
            for _ in range(5_000):
                self.wfile.write(b"O")
                time.sleep(0.02)

    began_s = time.monotonic()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_Answering, "do_POST", drops)
        with pytest.raises(NetworkException, match="gave no answer"):
            request_token(config(server, read_timeout_ms=100))
    assert time.monotonic() - began_s < 50  # of 100


def jwt(claims: str) -> str:
    return f"a.{base64.urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.c"


@pytest.mark.parametrize("number", ["1EEE", "Infinity", "NaN", "true", '"3600"', "null"])
def test_token_expiry_that_is_no_valid_time_is_ignored(server, number):
    number = number.replace("E", "0" * 200)
    assert given_token(jwt(f'{{"exp": {number}}}')).expires_s is None
    server.answer = (200, f'{{"access_token": "t", "expires_in": {number}}}'.encode(), {})
    assert request_token(config(server)).expires_s is None


def test_token_endpoint_answer_nested_too_deeply_is_refused(server):
    deep = "[" * 100_000
    assert given_token(jwt(deep)).expires_s is None
    server.answer = (200, deep.encode(), {})
    with pytest.raises(SaslAuthenticationFailed, match="without an access_token"):
        request_token(config(server))


async def test_event_loop_stays_free_while_a_token_provider_runs():
    entered, may_end = threading.Event(), threading.Event()

    def provider() -> str:
        entered.set()
        assert may_end.wait(10)
        return "token"

    source = TokenSource(TokenConfig(provider=provider))
    asking = asyncio.create_task(source.token())
    while not entered.is_set():
        await asyncio.sleep(0.001)
    may_end.set()  # by the loop, which is therefore free
    assert (await asking).value.reveal() == "token"


def test_token_provider_that_is_a_coroutine_function_is_awaited():
    async def provider() -> str:
        await asyncio.sleep(0)
        return "token"

    token = asyncio.run(TokenSource(TokenConfig(provider=provider)).token())
    assert token == Token(Secret("token"), None)


@pytest.mark.parametrize("given", [None, "", b"bytes", ("t", "soon"), ("t", 1, 2), ("t", True), 7])
def test_token_provider_with_an_invalid_result_is_refused(given):
    with pytest.raises(SaslAuthenticationFailed, match="has to return the token as text"):
        given_token(given)


def test_token_provider_that_raises_is_reported_with_the_exception_name():
    def provider() -> str:
        raise KeyError("geheim")

    with pytest.raises(KafkaError, match=r"token\.provider failed with KeyError$") as failure:
        asyncio.run(TokenSource(TokenConfig(provider=provider)).token())
    assert isinstance(failure.value.__cause__, KeyError)

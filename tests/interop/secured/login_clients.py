"""The Python clients that try the logins of `login_script`, and print "in" or the refusal.

A Python client runs all cases in its own process. Clients in Java, Node and Go do the same with the
programs in `programs/`. A client that is not installed on this machine is omitted with a message.
"""

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from .login_script import IN

PATIENCE_S = 6.0
Values = dict[str, Any]


def librdkafka(values: Values) -> str:
    from confluent_kafka import KafkaError, KafkaException, Producer

    met: list[str] = []

    def note(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            met.append(f"{error.name()}: {error.str()}")

    settings: Values = {"log_level": 0, "error_cb": note, **values}
    if pem := settings.pop("ssl.keystore.location", None):
        settings |= {"ssl.certificate.location": pem, "ssl.key.location": pem}
    if token_of := _token_of(settings):
        settings["oauth_cb"] = lambda _: (token_of(), time.time() + 3600)
    producer = Producer(settings)
    end_s = time.monotonic() + PATIENCE_S
    while not met and time.monotonic() < end_s:
        producer.poll(0.05)
        with contextlib.suppress(KafkaException):
            producer.list_topics(timeout=0.5)
            return IN
    return met[0] if met else "nothing is said"


def aiokafka(values: Values) -> str:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context

    words: list[str] = []

    class Words(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            words.append(record.getMessage())

    async def log_in() -> str:
        settings: Values = {
            "bootstrap_servers": values["bootstrap.servers"],
            "security_protocol": values["security.protocol"],
            "request_timeout_ms": int(PATIENCE_S * 1000),
        }
        if ca := values.get("ssl.ca.location"):
            pem = values.get("ssl.keystore.location")
            password = values.get("ssl.key.password")
            settings["ssl_context"] = create_ssl_context(
                cafile=ca, certfile=pem, keyfile=pem, password=password
            )
        if "sasl.mechanism" in values:
            settings["sasl_mechanism"] = values["sasl.mechanism"]
        if "sasl.username" in values:
            settings["sasl_plain_username"] = values["sasl.username"]
            settings["sasl_plain_password"] = values["sasl.password"]
        if token_of := _token_of(dict(values)):

            class Provider(AbstractTokenProvider):
                async def token(self) -> Any:
                    return token_of()

            settings["sasl_oauth_token_provider"] = Provider()
        producer = AIOKafkaProducer(**settings)
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                await producer.start()
        except (KafkaError, TimeoutError) as problem:
            said = words[0] if words else str(problem)
            return f"{type(problem).__name__}: {said}"
        finally:
            await producer.stop()
        return IN

    handler = Words(logging.ERROR)
    logger = logging.getLogger("aiokafka")
    logger.addHandler(handler)
    try:
        return asyncio.run(log_in())
    finally:
        logger.removeHandler(handler)


def kafka_python(values: Values) -> str:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    settings: Values = {
        "bootstrap_servers": values["bootstrap.servers"],
        "security_protocol": values["security.protocol"],
        "bootstrap_timeout_ms": int(PATIENCE_S * 1000),
        "request_timeout_ms": int(PATIENCE_S * 1000),
    }
    pem = values.get("ssl.keystore.location")
    for ours, theirs in (
        ("ssl_cafile", values.get("ssl.ca.location")),
        ("ssl_certfile", pem),
        ("ssl_keyfile", pem),
        ("ssl_password", values.get("ssl.key.password")),
        ("sasl_mechanism", values.get("sasl.mechanism")),
        ("sasl_plain_username", values.get("sasl.username")),
        ("sasl_plain_password", values.get("sasl.password")),
    ):
        if theirs is not None:
            settings[ours] = theirs
    if token_of := _token_of(dict(values)):

        class Provider(AbstractTokenProvider):
            def token(self) -> Any:
                return token_of()

        settings["sasl_oauth_token_provider"] = Provider()
    try:
        client = KafkaAdminClient(**settings)
    except KafkaError as problem:
        return f"{type(problem).__name__}: {problem}"
    client.close()
    return IN


def oncelog(values: Values) -> str:
    from oncelog.client import Admin
    from oncelog.wire.errors import KafkaError

    async def log_in() -> str:
        try:
            async with Admin(values, timeout_ms=int(PATIENCE_S * 1000)) as admin:
                await admin.describe_cluster()
        except KafkaError as problem:
            return f"{type(problem).__name__}: {problem}"
        return IN

    return asyncio.run(log_in())


def _token_of(settings: Values) -> Callable[[], str] | None:
    """Return a function that fetches a token, or None without a token endpoint in the settings.

    The endpoint's settings are removed.
    """
    prefix = "sasl.oauthbearer."
    url = settings.pop(f"{prefix}token.endpoint.url", None)
    user = settings.pop(f"{prefix}client.credentials.client.id", "")
    secret = settings.pop(f"{prefix}client.credentials.client.secret", "")
    if url is None:
        return None

    def fetch() -> str:
        import base64
        import urllib.request

        login = base64.b64encode(f"{user}:{secret}".encode()).decode()
        asked = urllib.request.Request(
            url, b"grant_type=client_credentials", {"Authorization": f"Basic {login}"}
        )
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return json.load(answer)["access_token"]

    return fetch


OF_PYTHON: dict[str, Callable[[Values], str]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "oncelog": oncelog,
}


def main() -> None:
    """Log in for each line of JSON on standard input, and print each result as JSON."""
    log_in = OF_PYTHON[sys.argv[1]]
    for line in sys.stdin:
        print(json.dumps(log_in(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

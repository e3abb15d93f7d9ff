"""Test logins and errors of oncelog's client on an Apache Kafka with TLS, SASL and ACLs.

One Kafka with all its listeners serves every test of this file (with ONCELOG_KAFKA=1).
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.main import run as run_command
from oncelog.client import Admin, BlockingConsumer, BlockingProducer, Consumer, Producer
from oncelog.client.failures import SecurityProtocolMismatch, SslAuthenticationFailed
from oncelog.client.loop_thread import new_event_loop
from oncelog.client.view_source import view_of
from oncelog.wire.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    IllegalSaslState,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanism,
)

from ..secured.certificates import KEY_PASSWORD
from ..secured.logins import MECHANISMS, MODULE, USERS
from ..secured.secured_kafka import PREFIXED, SESSION_MS, SecuredKafka
from ..secured.token_provider import CLIENT_SECRET

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("secured kafka")]
TOPIC, GROUP, TRANSACTIONS = "orders", "billing", "payments"
SECONDS_MAX = 50.0  # until the error, of 60
Values = dict[str, Any]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as peer:
        asyncio.run(prepare(peer))
        yield peer


async def prepare(kafka: SecuredKafka) -> None:
    """Create the topic, and grant alice all that the tests need. Mallory gets no right."""
    async with Admin(kafka.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1)
    await kafka.allow("alice", "topic", TOPIC, "Read", "Write")
    await kafka.allow("alice", "group", GROUP, "Read")
    await kafka.allow("alice", "transactional_id", TRANSACTIONS, "Write")


def login(kafka: SecuredKafka, protocol: str, mechanism: str, user: str = "alice") -> Values:
    return kafka.login(protocol, mechanism, user)


WAYS = [
    ("SSL", ""),
    *((p, m) for p in ("SASL_SSL", "SASL_PLAINTEXT") for m in MECHANISMS),
]


@pytest.mark.in_turn
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
async def test_client_with_each_protocol_and_mechanism_writes_and_reads_on_kafka(
    kafka, protocol, mechanism
):
    values = login(kafka, protocol, mechanism)
    text = uuid.uuid4().hex.encode()
    async with Producer(values) as producer:
        where = await (await producer.send(TOPIC, text))
        connection = await producer.view.any_broker()
        assert connection.features["transaction.version"] == 2
    async with Consumer(values) as consumer:
        consumer.assign({(TOPIC, 0): where.offset})
        async with asyncio.timeout(20):
            while not (rows := await consumer.poll(500)):
                pass
        assert rows[0].value == text
    async with Admin(values) as admin:
        assert [p.partition for p in await admin.describe_topics([TOPIC])] == [0]


def test_client_over_tls_commits_a_transaction_and_consumes_in_a_group(kafka):
    values = login(kafka, "SASL_SSL", "SCRAM-SHA-512")
    text = uuid.uuid4().hex.encode()
    with BlockingConsumer(
        values, group_id=GROUP, auto_offset_reset="latest", isolation_level="read_committed"
    ) as consumer:
        consumer.subscribe([TOPIC])
        found: list[bytes | None] = []
        deadline = time.monotonic() + 20
        while not consumer.assignment or consumer.position(TOPIC, 0) < 0:
            assert time.monotonic() < deadline
            consumer.poll(100)
        with BlockingProducer(values, transactional_id=TRANSACTIONS) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(TOPIC, b"aborted")
            producer.flush()
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send(TOPIC, text)
            producer.send_offsets_to_transaction({(TOPIC, 0): 1}, GROUP)
            producer.commit_transaction()
        while not found and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(500)]
        assert found == [text]


def test_client_over_tls_sends_megabytes_that_are_read_back_equal(kafka):
    values = login(kafka, "SASL_SSL", "PLAIN")
    sent = [bytes([i % 251]) * 100_000 for i in range(30)]

    async def work() -> None:
        async with Producer(values) as producer:
            (first, *_) = await (await producer.send_many(TOPIC, sent))
        async with Consumer(values) as consumer:
            consumer.assign({(TOPIC, 0): first.first_offset})
            found: list[bytes | None] = []
            async with asyncio.timeout(20):
                while len(found) < len(sent):
                    found += [r.value for r in await consumer.poll(500)]
        assert found == sent

    for loop in (asyncio.new_event_loop, new_event_loop):
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(work())


async def test_client_with_expiring_sessions_reauthenticates_and_keeps_order(kafka):
    values = login(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-256")
    async with (
        Producer(values) as busy,
        Producer(values) as silent,
        Consumer(values) as consumer,
    ):
        first = await (await silent.send(TOPIC, b"first"))
        consumer.assign({(TOPIC, 0): first.offset})
        sent, found = [b"first"], list[bytes | None]()
        until = time.monotonic() + 1.2 * SESSION_MS / 1000
        while time.monotonic() < until:
            sent.append(str(len(sent)).encode())
            await (await busy.send(TOPIC, sent[-1]))
            found += [record.value for record in await consumer.poll(0)]
        sent.append(b"last")  # a client that was silent for longer than its session
        await (await silent.send(TOPIC, sent[-1]))
        at = ("127.0.0.1", kafka.ports["SASL_PLAINTEXT"])
        fetching = (await consumer.view.connection_to(*at, "fetch"))._session
        assert fetching is not None
        async with asyncio.timeout(20):
            while len(found) < len(sent) or not fetching.renewals:
                found += [record.value for record in await consumer.poll(200)]
        assert found == sent
        for view, channel in ((busy.view, ""), (silent.view, ""), (consumer.view, "fetch")):
            session = (await view.connection_to(*at, channel))._session
            assert session is not None and session.renewals >= 1, channel


# --- errors


def failure(values: Values, call: Callable[[Admin], Any] | None = None) -> KafkaError:
    async def work() -> None:
        async with Admin(values, timeout_ms=60_000) as admin:
            await (call(admin) if call else admin.describe_topics([TOPIC]))

    began = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        asyncio.run(work())
    assert time.monotonic() - began < SECONDS_MAX
    assert not caught.value.retriable
    for secret in (*USERS.values(), CLIENT_SECRET, KEY_PASSWORD, "falsch"):
        assert secret not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_client_with_a_wrong_password_or_token_raises_with_advice(kafka, mechanism):
    wrong = {
        "sasl.oauthbearer.client.credentials.client.secret"
        if mechanism == "OAUTHBEARER"
        else "sasl.password": "falsch"
    }
    for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
        problem = failure({**login(kafka, protocol, mechanism), **wrong})
        assert isinstance(problem, SaslAuthenticationFailed)
        assert "check sasl." in str(problem)


@pytest.mark.parametrize("wrong", [{"audience": "others"}, {"life_s": -100}])
def test_client_with_a_token_refused_by_the_broker_raises_with_the_reason(kafka, wrong):
    values = {
        "bootstrap.servers": kafka.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.files.ca),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": lambda: kafka.provider.token("alice", **wrong),
    }
    problem = failure(values)
    assert isinstance(problem, SaslAuthenticationFailed)
    assert "invalid_token" in str(problem) and "expired" in str(problem)


def test_client_with_another_protocol_than_the_listener_raises_an_explanation(kafka):
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(kafka.files.ca)}
    alice = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": USERS["alice"]}
    for to, values, kind, words in (
        ("SSL", {}, SecurityProtocolMismatch, "speaks TLS, this client does not"),
        ("SASL_SSL", {}, SecurityProtocolMismatch, "speaks TLS, this client does not"),
        ("SASL_PLAINTEXT", {}, SecurityProtocolMismatch, "asks for SASL: set security.protocol"),
        ("SASL_SSL", tls, SecurityProtocolMismatch, "set security.protocol to SASL_SSL"),
        ("PLAINTEXT", tls, SecurityProtocolMismatch, "does not speak TLS"),
        ("SASL_PLAINTEXT", {**tls, **alice, "security.protocol": "SASL_SSL"},
         SecurityProtocolMismatch, "does not speak TLS"),
        ("PLAINTEXT", {**alice, "security.protocol": "SASL_PLAINTEXT"}, IllegalSaslState,
         "does not authenticate by SASL"),
    ):  # fmt: skip
        address = kafka.bootstrap if to == "PLAINTEXT" else kafka.address(to)
        problem = failure({"bootstrap.servers": address, **values})
        assert isinstance(problem, kind) and words in str(problem), (to, values)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_client_with_each_kind_of_certificate_problem_raises_an_explanation(kafka, version):
    files, ours = kafka.files, {"ssl.enabled.protocols": version}
    ssl_, sasl = login(kafka, "SSL", ""), login(kafka, "SASL_SSL", "PLAIN")
    anonymous = {k: v for k, v in ssl_.items() if not k.startswith("ssl.key")}
    for values, words in (
        ({**sasl, "ssl.ca.location": str(files.other_ca)}, "not signed by a CA that we trust"),
        ({**sasl, "bootstrap.servers": f"localhost:{kafka.ports['SASL_SSL']}"},
         "that is not of localhost"),
        (anonymous, "asks for a client certificate"),
        ({**ssl_, "ssl.keystore.location": str(files.mallory)}, "refuses our client certificate"),
        ({**ssl_, "ssl.keystore.location": str(files.expired)}, "has expired"),
    ):  # fmt: skip
        problem = failure({**values, **ours})
        assert isinstance(problem, SslAuthenticationFailed) and words in str(problem)


async def test_client_with_an_unoffered_sasl_mechanism_raises_with_the_offered_mechanisms(
    kafka, monkeypatch
):
    values = login(kafka, "SASL_SSL", "PLAIN")
    view = view_of(values)
    monkeypatch.setattr("oncelog.client.security.exchange.PlainClient.name", "ANONYMOUS")
    with pytest.raises(UnsupportedSaslMechanism, match="does not offer ANONYMOUS; it offers:"):
        await view.refresh()
    await view.close()


async def test_client_without_a_permission_raises_an_error_with_the_permission_name(kafka):
    alice, mallory = (login(kafka, "SASL_SSL", "SCRAM-SHA-512", u) for u in ("alice", "mallory"))

    async def send(values: Values, topic: str, **keywords: Any) -> None:
        async with Producer(values, **keywords) as producer:
            if "transactional_id" in keywords:
                await producer.init_transactions()
            await (await producer.send(topic, b"value"))

    async def read(values: Values, group: str) -> None:
        async with Consumer(values, group_id=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            for _ in range(100):
                await consumer.poll(200)

    async def fetch(values: Values) -> None:
        async with Consumer(values) as consumer:
            consumer.assign({(TOPIC, 0): 0})
            for _ in range(100):
                await consumer.poll(200)

    await kafka.allow("mallory", "topic", TOPIC, "Describe")
    with pytest.raises(ClusterAuthorizationFailed, match="--operation IdempotentWrite"):
        await send(mallory, TOPIC)
    await kafka.allow("mallory", "topic", "own", "Write")
    for attempt, kind, words in (
        (send(mallory, "secret"), TopicAuthorizationFailed, "Describe on the topic secret"),
        (send(mallory, TOPIC), TopicAuthorizationFailed,
         f"--operation Write --topic {TOPIC}"),
        (fetch(mallory), TopicAuthorizationFailed, f"--operation Read --topic {TOPIC}"),
        (read(mallory, GROUP), GroupAuthorizationFailed, f"Read on the group {GROUP}"),
        (read(alice, "other"), GroupAuthorizationFailed, "--operation Read --group other"),
        (send(alice, TOPIC, transactional_id="other"), TransactionalIdAuthorizationFailed,
         "--operation Write --transactional-id other"),
    ):  # fmt: skip
        began = time.monotonic()
        with pytest.raises(kind) as caught:
            await attempt
        assert time.monotonic() - began < SECONDS_MAX, words
        assert words in str(caught.value)


ADMINISTRATION: list[tuple[Callable[[Admin], Any], str]] = [
    (lambda a: a.create_topic("another", partitions=1, replication_factor=1), "Create --topic a"),
    (lambda a: a.create_partitions(TOPIC, 5), f"Alter --topic {TOPIC}"),
    (lambda a: a.delete_topics([TOPIC]), f"Delete --topic {TOPIC}"),
    (lambda a: a.delete_records(TOPIC, 0, 1), f"Delete --topic {TOPIC}"),
    (lambda a: a.alter_configs(TOPIC, {"retention.ms": "9"}), f"AlterConfigs --topic {TOPIC}"),
    (lambda a: a.describe_configs(TOPIC), f"DescribeConfigs --topic {TOPIC}"),
    (lambda a: a.elect_leaders([(TOPIC, 0)]), "Alter --cluster"),
    (lambda a: a.describe_log_dirs(), "Describe --cluster"),
    (lambda a: a.groups.delete(GROUP), f"Delete --group {GROUP}"),
    (lambda a: a.groups.commit("other", {(TOPIC, 0): 1}), "Read --group other"),
    (lambda a: a.transactions.end("other"), "Write --transactional-id other"),
]


async def test_admin_without_a_permission_raises_an_error_with_the_permission_name(kafka):
    async with Admin(login(kafka, "SASL_SSL", "PLAIN")) as admin:
        for call, words in ADMINISTRATION:
            try:
                await call(admin)
            except KafkaError as problem:
                assert f"--operation {words}" in str(problem) and not problem.retriable
            else:
                pytest.fail(f"{words} was not needed")


# --- the command line


def test_command_line_accepts_a_client_file_of_java_or_librdkafka(kafka, tmp_path: Path, capsys):
    java = tmp_path / "java.properties"
    java.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nacks=all\n"
        f"sasl.jaas.config={MODULE}.scram.ScramLoginModule required \\\n"
        f'   username="alice" password="{USERS["alice"]}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={kafka.files.ca}\n"
    )
    librdkafka = tmp_path / "librdkafka.properties"
    librdkafka.write_text(
        f"bootstrap.servers={kafka.address('SASL_SSL')}\nsecurity.protocol=sasl_ssl\n"
        f"sasl.mechanisms=PLAIN\nsasl.username=alice\nsasl.password={USERS['alice']}\n"
        f"ssl.ca.location={kafka.files.ca}\n"
    )
    at = ["--bootstrap", kafka.address("SASL_SSL")]
    assert run_command(["topic", "list", *at, "--command-config", str(java)]) == 0
    printed = capsys.readouterr()
    assert TOPIC in printed.out and "settings that oncelog does not use: acks" in printed.err
    config = ["--command-config", str(librdkafka)]
    assert run_command(["consume", TOPIC, "--max", "1", *config]) == 0
    assert run_command(["group", "list", *config]) == 0
    capsys.readouterr()
    assert run_command(["check", TOPIC, *config]) == 2
    assert f"--operation DescribeConfigs --topic {TOPIC}" in capsys.readouterr().err

    librdkafka.write_text(librdkafka.read_text().replace(USERS["alice"], "falsch"))
    assert run_command(["topic", "list", *config]) == 1
    printed = capsys.readouterr()
    assert (
        "refused user alice by PLAIN" in printed.err and "falsch" not in printed.err + printed.out
    )
    java.write_text(java.read_text().replace(str(kafka.files.ca), str(tmp_path / "none.pem")))
    assert run_command(["topic", "list", *at, "--command-config", str(java)]) == 2
    assert "none.pem cannot be read" in capsys.readouterr().err


async def test_bench_and_probe_accept_a_client_file(kafka, tmp_path: Path, capsys):
    await kafka.allow("alice", "topic", "bench-", "Create", "Write", "Delete", pattern=PREFIXED)
    await kafka.allow("alice", "transactional_id", "bench of ", "Write", pattern=PREFIXED)
    file = tmp_path / "client.properties"
    java = (
        f"bootstrap.servers={kafka.address('SASL_SSL')}\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.jaas.config={MODULE}.scram.ScramLoginModule required "
        f'username="alice" password="{USERS["alice"]}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={kafka.files.ca}\n"
    )
    file.write_text(java)
    config = ["--command-config", str(file)]
    small = ["--records", "1", "--partitions", "1", "--rf", "1", "--min-isr", "1", "-r", "1"]
    bench = ["bench", "txn", *small, "--seconds", "0.5", *config]
    page = ["--json", str(tmp_path / "bench.json")]
    assert await asyncio.to_thread(run_command, [*bench, *page]) == 0
    assert USERS["alice"] not in (tmp_path / "bench.json").read_text()
    probe = ["doctor", "--probe", "--seconds", "0.5", "--format", "json", *config]
    assert await asyncio.to_thread(run_command, probe) in (0, 1)  # 1: an answer was late
    printed = capsys.readouterr()
    assert '"answers"' in printed.out and USERS["alice"] not in printed.out + printed.err
    file.write_text(java.replace(USERS["alice"], "falsch"))
    for command in (bench, probe):
        assert await asyncio.to_thread(run_command, command) == 1
        assert "refused user alice by SCRAM-SHA-256" in capsys.readouterr().err

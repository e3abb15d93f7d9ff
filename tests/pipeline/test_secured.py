"""Test Spark on a Kafka with TLS, SASL and ACLs, and that no secret is visible.

One Kafka with all its listeners serves every test of this file, which needs ONCELOG_KAFKA=1.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.client import Admin, BlockingProducer, Producer
from oncelog.pipeline import exactly_once
from oncelog.pipeline.command_line import with_prefix
from oncelog.pipeline.failure_words import sentence_of
from oncelog.pipeline.jobs import flights
from oncelog.proof.audit.__main__ import main as audit

from ..interop.client_peers import PREPARES, SCAN
from ..interop.secured.certificates import KEY_PASSWORD
from ..interop.secured.logins import MODULE, USERS
from ..interop.secured.secured_kafka import CLUSTER_NAME, PREFIXED, SecuredKafka
from ..interop.secured.token_provider import CLIENT_SECRET
from ..programs import CLI, run_to_end
from ..proof.audit.audited_logs import lightly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.kafka
SLOW = pytest.mark.spark_slow  # more of the same
PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark-reference.md"
SOURCE, OUTPUT, SINKS = "orders", "invoices", "oncelog.spark."
ROWS = 20
SECONDS_MAX = 120.0  # until a query has failed: Spark starts workers, and tries a task three times
WRONG = "falsch"
SECRETS = (*USERS.values(), CLIENT_SECRET, KEY_PASSWORD, WRONG)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    folder = tmp_path_factory.mktemp("secured")
    with SecuredKafka(folder, PREPARES | SCAN) as peer:
        asyncio.run(prepare(peer))
        yield peer


async def prepare(kafka: SecuredKafka) -> None:
    """Create the topics with records, and grant ACLs. docs/spark-reference.md lists carol's."""
    async with Admin(kafka.bootstrap) as admin:
        for topic in (SOURCE, OUTPUT):
            await admin.create_topic(topic, partitions=2, replication_factor=1)
    await kafka.allow("alice", "topic", SOURCE, "Read", "Write", "DescribeConfigs")
    await kafka.allow("alice", "topic", OUTPUT, "Read", "Write")
    decisions = ("Create", "Read", "Write", "DescribeConfigs")
    await kafka.allow("alice", "topic", "oncelog.spark.decisions", *decisions)
    await kafka.allow(
        "alice", "transactional_id", SINKS, "Write", "TwoPhaseCommit", pattern=PREFIXED
    )
    await kafka.allow("alice", "cluster", CLUSTER_NAME, "DescribeConfigs")
    # mode "transactional" needs neither TwoPhaseCommit nor the cluster's configuration
    await kafka.allow("bob", "topic", SOURCE, "Read", "DescribeConfigs")
    await kafka.allow("bob", "topic", OUTPUT, "Read", "Write")
    await kafka.allow("bob", "topic", "oncelog.spark.decisions", *decisions)
    await kafka.allow("bob", "transactional_id", SINKS, "Write", pattern=PREFIXED)
    # the program of docs/spark-reference.md has exactly the grants of that page
    await kafka.allow("carol", "topic", SOURCE, "Read")
    await kafka.allow("carol", "topic", OUTPUT, "Write")
    await kafka.allow("carol", "topic", "oncelog.spark.decisions", *decisions)
    ids = ("Write", "TwoPhaseCommit")
    await kafka.allow("carol", "transactional_id", SINKS, *ids, pattern=PREFIXED)
    await kafka.allow("carol", "cluster", CLUSTER_NAME, "DescribeConfigs")
    with BlockingProducer(kafka.login("SASL_SSL", "PLAIN")) as producer:
        producer.send_many(SOURCE, [str(number).encode() for number in range(ROWS)])
        producer.flush()


def logins(kafka: SecuredKafka) -> dict[str, dict[str, Any]]:
    """Return a login by SCRAM, one by certificate, one by tokens, and one with Java's names."""
    module = f"{MODULE}.scram.ScramLoginModule required"
    java = {
        "bootstrap.servers": kafka.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": kafka.files.ca.read_text(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} username="alice" password="{USERS["alice"]}";',
    }
    return {
        "SCRAM": kafka.login("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        "certificate": kafka.login("SSL", ""),
        "tokens": kafka.login("SASL_SSL", "OAUTHBEARER"),
        "java": java,
    }


def source(spark: "SparkSession", login: dict[str, Any], topic: str = SOURCE) -> "DataFrame":
    reader = spark.read.format("oncelog").options(**with_prefix(login))
    return reader.option("subscribe", topic).load()


def stream(spark: "SparkSession", login: dict[str, Any]) -> "DataFrame":
    reader = spark.readStream.format("oncelog").options(**with_prefix(login))
    return reader.options(subscribe=SOURCE, startingOffsets="earliest").load()


def values_of(frame: "DataFrame") -> list[int]:
    return sorted(int(row["value"]) for row in frame.select("value").collect())


def plan_of(frame: "DataFrame") -> str:
    execution: Any = frame._jdf
    return execution.queryExecution().toString() + execution.queryExecution().simpleString()


def with_own_tokens(kafka: SecuredKafka, login: dict[str, Any]) -> dict[str, Any]:
    """Return the login with a token function of the application instead of an endpoint."""
    token = kafka.provider.token("alice")
    plain = {n: v for n, v in login.items() if not n.startswith("sasl.oauthbearer")}
    return {**plain, "sasl.oauthbearer.token.provider": lambda: token}


def assert_no_secret(text: str) -> None:
    for secret in SECRETS:
        assert secret not in text, text[:2000]
    assert "PRIVATE KEY" not in text


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "way", ["java", *(pytest.param(way, marks=SLOW) for way in ("SCRAM", "certificate", "tokens"))]
)
def test_secured_source_reads_with_each_login_mechanism(spark, kafka, way):
    frame = source(spark, logins(kafka)[way])
    assert set(values_of(frame)) >= set(range(ROWS))
    assert_no_secret(plan_of(frame) + repr(frame))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("mode", "mechanism"),
    [
        pytest.param("prepared", "SCRAM-SHA-512", marks=SLOW),
        pytest.param("driver", "PLAIN", marks=SLOW),
        ("prepared", "OAUTHBEARER"),
        ("transactional", "SCRAM-SHA-512"),
    ],
)  # fmt: skip
def test_secured_query_from_topic_to_topic_is_exactly_once(
    spark, kafka, mode, mechanism, checkpoint, caplog, capfd
):
    caplog.set_level(logging.DEBUG, "oncelog")
    login = kafka.login("SASL_SSL", mechanism, "bob" if mode == "transactional" else "alice")
    servers = login.pop("bootstrap.servers")
    rows = stream(spark, {**login, "bootstrap.servers": servers})
    query = exactly_once(
        rows.selectExpr(f"concat('{mode} {mechanism} ', value) AS value"),
        sink_id=f"secured-{mode}-{mechanism}",
        bootstrap=servers,
        topic=OUTPUT,
        checkpoint=checkpoint,
        mode=mode,
        trigger={"availableNow": True},
        **(login if mechanism != "OAUTHBEARER" else with_own_tokens(kafka, login)),
    )
    query.awaitTermination()
    made = source(spark, {**login, "bootstrap.servers": servers}, OUTPUT)
    found = sorted(r.value.decode() for r in made.select("value").collect())
    wanted = [f"{mode} {mechanism} {number}" for number in range(ROWS)]
    mine = [value for value in found if value.startswith(f"{mode} {mechanism} ")]
    assert mine == sorted(wanted)
    assert_no_secret(caplog.text + "".join(capfd.readouterr()) + str(query.lastProgress))
    for file in Path(checkpoint).rglob("*"):
        if file.is_file():
            assert_no_secret(file.read_bytes().decode(errors="replace"))


@pytest.mark.in_turn
def test_secured_program_of_the_docs_runs_with_the_permissions_listed_there(
    spark, kafka, tmp_path, monkeypatch, capfd
):
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (program,) = [each for each in programs if "KAFKA_CA_FILE" in each]
    folder = f'"{tmp_path}/invoices-checkpoint"'  # the session of the tests has a folder of its own
    program = program.replace('"invoices-checkpoint"', folder).replace('"alice"', '"carol"')
    assert folder in program and "alice" not in program
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.address("SASL_SSL"))
    monkeypatch.setenv("KAFKA_PASSWORD", USERS["carol"])
    monkeypatch.setenv("KAFKA_CA_FILE", str(kafka.files.ca))
    orders = values_of(source(spark, logins(kafka)["SCRAM"]))
    exec(compile(program, str(PAGE), "exec"), {})
    made = source(spark, logins(kafka)["SCRAM"], OUTPUT)
    values = [row.value.decode() for row in made.select("value").collect()]
    numbers = [int(each.removeprefix("invoice ")) for each in values if each.startswith("invoice ")]
    assert sorted(numbers) == orders
    assert_no_secret("".join(capfd.readouterr()))


@pytest.mark.in_turn
def test_secured_writers_without_exactly_once_write_rows(spark, kafka):
    login = logins(kafka)["certificate"]
    key = kafka.files.alice.read_text()
    del login["ssl.keystore.location"]
    login |= {"ssl.keystore.certificate.chain": key, "ssl.keystore.key": key}
    frame = spark.createDataFrame([(b"1000",)], "value binary")
    frame.write.format("oncelog").mode("append").options(**with_prefix(login)).option(
        "topic", SOURCE
    ).save()
    assert 1000 in values_of(source(spark, login))
    assert_no_secret(plan_of(source(spark, login)))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"sasl.password": WRONG}, "refused user alice by SCRAM-SHA-512"),
        pytest.param(
            {"security.protocol": "SASL_PLAINTEXT"}, "speaks TLS, this client does not", marks=SLOW
        ),
        ({"sasl.username": "mallory", "sasl.password": USERS["mallory"]},
         "no permission for Describe on the topic orders"),
        pytest.param({"sasl.mechanism": "GSSAPI"}, "GSSAPI is not supported", marks=SLOW),
    ],
)  # fmt: skip
def test_secured_query_with_a_wrong_login_fails_soon_with_a_clear_error(
    spark, kafka, checkpoint, wrong, words
):
    from pyspark.errors import StreamingQueryException

    login = {**kafka.login("SASL_SSL", "SCRAM-SHA-512"), **wrong}
    if wrong.get("security.protocol"):
        del login["ssl.ca.location"]
    began = time.monotonic()
    with pytest.raises(StreamingQueryException) as failure:
        query = (
            stream(spark, login).writeStream.format("noop").option("checkpointLocation", checkpoint)
        )
        query.trigger(availableNow=True).start().awaitTermination()
    assert time.monotonic() - began < SECONDS_MAX
    assert words in str(failure.value) and words in sentence_of(failure.value)
    assert_no_secret(str(failure.value))


@pytest.mark.in_turn
def test_secured_sink_without_write_permission_reports_the_missing_permission(
    spark, kafka, checkpoint
):
    from pyspark.errors import StreamingQueryException

    login = kafka.login("SASL_SSL", "PLAIN")
    servers = login.pop("bootstrap.servers")
    began = time.monotonic()
    query = exactly_once(
        stream(spark, {**login, "bootstrap.servers": servers}).select("value"),
        sink_id="secured-denied", bootstrap=servers, topic="another", checkpoint=checkpoint,
        trigger={"availableNow": True}, **login,
    )  # fmt: skip
    with pytest.raises(StreamingQueryException) as failure:
        query.awaitTermination()
    assert time.monotonic() - began < SECONDS_MAX
    assert "on the topic another" in sentence_of(failure.value)
    assert_no_secret(str(failure.value))


def client_file(folder: Path, login: dict[str, Any]) -> str:
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    return str(file)


@SLOW
def test_secured_audit_accepts_a_client_file(spark, kafka, tmp_path, capsys):
    asked = ["--command-config", client_file(tmp_path, kafka.login("SASL_SSL", "PLAIN"))]
    with lightly(spark):
        assert audit([*asked, "--topic", SOURCE, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] >= ROWS
    wrong = kafka.login("SASL_SSL", "PLAIN") | {"sasl.password": WRONG}
    assert audit(["--command-config", client_file(tmp_path, wrong), "--topic", SOURCE]) == 2
    printed = capsys.readouterr()
    assert "refused user alice by PLAIN" in printed.err
    assert_no_secret(printed.err + printed.out)


def test_secured_flight_job_accepts_a_client_file(spark, kafka, tmp_path, capsys):
    file = client_file(tmp_path, kafka.login("SASL_SSL", "PLAIN"))
    options = flights.arguments(["--command-config", file, "--checkpoint", "/c"])
    assert flights.source(spark, options).isStreaming
    assert_no_secret(repr(options))
    with pytest.raises(SystemExit):
        flights.arguments(["--checkpoint", "/c"])
    assert "--bootstrap HOST:PORT, or in --command-config" in capsys.readouterr().err


@pytest.mark.in_turn
def test_txn_abort_with_a_client_file_aborts_an_open_transaction_on_a_secured_kafka(
    kafka, tmp_path
):
    login = kafka.login("SASL_SSL", "PLAIN")

    async def leave_open() -> None:
        producer = Producer(
            login,
            transactional_id=f"{SINKS}secured-left.g1.abc.0",
            transaction_two_phase_commit_enable=True,
        )
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(OUTPUT, b"never")
        await producer.prepare()
        await producer.close()

    asyncio.run(leave_open())
    file = client_file(tmp_path, login)
    command = [*CLI, "txn", "abort", "--prefix", f"{SINKS}secured-left."]
    done = run_to_end([*command, "--command-config", file, "--format", "json"])
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["outcome"] == "aborted"
    assert_no_secret(done.stdout + done.stderr)

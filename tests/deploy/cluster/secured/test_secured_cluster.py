"""Test the files and logins of a cluster started by `oncelog up --secure`."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, admin

from oncelog.client import BlockingProducer
from oncelog.client.security.client_file import read_client_file
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.secured.files import CLIENT_KINDS, USERS, client_file, passwords_of
from oncelog.wire.errors import ProducerFenced

from ....programs import CLI, run_to_end

ADMIN: Any = admin  # the stubs of this module lack ACLs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("secured") / "data"
    with Cluster(1, data=data, secure=True) as found:
        yield found
        found.down(purge=True)
        assert not data.exists()


def librdkafka(cluster: Cluster, user: str) -> dict[str, Any]:
    lines = client_file(cluster.data, user, "librdkafka").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def produced(config: dict[str, Any], topic: str = "orders") -> Any:
    errors: list[Any] = []
    producer = Producer({**config, "message.timeout.ms": 15_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    return errors[0]


def test_secured_cluster_admin_is_unrestricted_and_other_users_are_restricted_by_acls(
    cluster: Cluster,
) -> None:
    client = ADMIN.AdminClient(librdkafka(cluster, "admin"))
    client.create_topics([ADMIN.NewTopic("orders", 1, 1)])["orders"].result(20)
    assert produced(librdkafka(cluster, "admin")) is None
    refused = produced(librdkafka(cluster, "alice"))
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allowed = ADMIN.AclBinding(
        ADMIN.ResourceType.TOPIC, "orders", ADMIN.ResourcePatternType.LITERAL, "User:alice", "*",
        ADMIN.AclOperation.WRITE, ADMIN.AclPermissionType.ALLOW,
    )  # fmt: skip
    for future in client.create_acls([allowed]).values():
        future.result(20)
    assert produced(librdkafka(cluster, "alice")) is None
    assert produced(librdkafka(cluster, "bob")).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_client_with_a_wrong_password_or_plaintext_is_refused(cluster: Cluster) -> None:
    wrong = librdkafka(cluster, "alice") | {"sasl.password": "falsch"}
    plain = {"bootstrap.servers": cluster.bootstrap}
    for config in (wrong, plain):
        client = ADMIN.AdminClient({**config, "socket.timeout.ms": 3_000})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=3)


def test_client_file_of_each_kind_has_the_address_and_sasl_ssl_for_the_oncelog_client(
    cluster: Cluster,
) -> None:
    for user in USERS:
        for kind in CLIENT_KINDS:
            config, unused = read_client_file(client_file(cluster.data, user, kind))
            assert config["bootstrap.servers"] == cluster.bootstrap and unused == ()
            assert config["security.protocol"] == "SASL_SSL"


def test_command_line_logs_in_as_admin_and_prints_passwords_only_on_request(
    cluster: Cluster,
) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "oncelog.cli.main", *words, "--data", str(cluster.data)]
        command[1:3] = ["-c", "import sys; from oncelog.cli.main import main; sys.exit(main())"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    run("topic", "create", "invoices", "--partitions", "1", "--rf", "1")
    assert "invoices" in run("topic", "list")
    password = passwords_of(cluster.data)["alice"]
    hidden = run("env", "--client", "java", "--user", "alice")
    assert password not in hidden and "[hidden]" in hidden
    assert str(client_file(cluster.data, "alice", "java")) in hidden
    shown = json.loads(
        run(
            "env", "--client", "librdkafka", "--user", "alice", "--show-secrets", "--format", "json"
        )
    )
    assert shown["sasl.password"] == password
    options = run("env", "--client", "spark", "--user", "alice")
    assert "\nkafka.security.protocol=SASL_SSL\n" in options
    assert "\nkafka.ssl.truststore.type=PEM\n" in options and password not in options


def test_secured_cluster_secrets_are_only_in_files_readable_only_by_their_owner(
    cluster: Cluster,
) -> None:
    node = cluster.node(1)
    process = node.find()
    assert process is not None
    secrets = [value.encode() for value in passwords_of(cluster.data).values()]
    secrets.append(b"PRIVATE KEY")
    for place in ("cmdline", "environ"):
        seen = Path(f"/proc/{process.pid}/{place}").read_bytes()
        assert not any(secret in seen for secret in secrets)
    for path in cluster.data.rglob("*"):
        if not path.is_symlink():
            assert stat.S_IMODE(os.lstat(path).st_mode) & 0o077 == 0, path
        if path.is_file() and path.parent.name not in ("client", "tls"):
            content = path.read_bytes()
            found = [secret for secret in secrets if secret in content]
            assert not found or path.name == "server.properties", path


def test_plaintext_cluster_started_again_as_secured_is_refused(tmp_path: Path) -> None:
    with Cluster(1, data=tmp_path / "data"):
        pass
    with pytest.raises(Failure, match="holds a cluster in plain text"):
        Cluster(1, data=tmp_path / "data", secure=True).up()


@pytest.mark.in_turn
def test_txn_abort_by_prefix_on_a_secured_cluster_aborts_a_sink_transaction(
    cluster: Cluster,
) -> None:
    cluster.ask(lambda admin: admin.create_topic("sunk", partitions=1, replication_factor=1))
    name = "oncelog.spark.s.g1.0000abcd.1"
    with BlockingProducer(cluster.client_config(), transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("sunk", b"x").result()
        command = [*CLI, "txn", "abort", "--prefix", "oncelog.spark.", "--format", "json"]
        done = run_to_end([*command, "--data", str(cluster.data)], 60)
        assert done.returncode == 0 and name in done.stdout, done.stderr
        with pytest.raises(ProducerFenced):
            producer.abort_transaction()

"""Test the protocol proxy and `prove` on a secured cluster, with TLS on both sides."""

import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import oncelog
from oncelog.client import BlockingProducer
from oncelog.client.failures import SslAuthenticationFailed
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.secured.files import client_file
from oncelog.deploy.faults.protocol_proxy.events import Event, Request
from oncelog.deploy.faults.protocol_proxy.proxy import ProtocolProxy
from oncelog.deploy.faults.protocol_proxy.rules import LoseAnswer, Match, Rule
from oncelog.deploy.faults.protocol_proxy.secured_ends import (
    ca_of,
    own_tls,
    proxy_tls,
    write_files_like,
)
from oncelog.deploy.faults.secured_user import SecuredUser, restore
from oncelog.proof.prove.observed import wait_for
from oncelog.wire.errors import (
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
)

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
PROGRAMS = Path(__file__).parents[1] / "prove" / "programs"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("proxied") / "data"
    config = {"connections.max.reauth.ms": 3_600_000}
    with Cluster(1, data=data, secure=True, config=config) as found:
        found.ask(lambda admin: admin.create_topic("orders", partitions=1, replication_factor=1))
        yield found
        found.down(purge=True)


def test_secured_proxy_forwards_a_login_and_applies_rules_to_its_requests(cluster: Cluster) -> None:
    events: list[Event] = []
    tls = proxy_tls(cluster.data)
    with ProtocolProxy(cluster.client_config(), [events.append], tls=tls) as proxy:
        address = proxy.address_for("it")
        config = cluster.client_config(**{"bootstrap.servers": address})
        rule = Rule(Match(apis={"Produce"}), LoseAnswer())
        proxy.add(rule)
        with BlockingProducer(config) as producer:
            assert producer.send("orders", b"x").result().offset == 0  # sent again, written once
            assert producer.send("orders", b"y").result().offset == 1
        assert proxy.made(rule) == 1
        asked = {event.api for event in events if isinstance(event, Request)}
        assert {"SaslHandshake", "SaslAuthenticate", "Produce"} <= asked
        with (
            pytest.raises(SaslAuthenticationFailed),
            BlockingProducer({**config, "sasl.password": "falsch"}) as producer,
        ):
            producer.send("orders", b"z").result()


def test_secured_proxy_refuses_a_plaintext_client(cluster: Cluster) -> None:
    with ProtocolProxy(cluster.client_config(), tls=proxy_tls(cluster.data)) as proxy:
        host, port = proxy.address_for("it").split(":")
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
            client.settimeout(20)
            while client.recv(100):
                pass
        assert proxy.connections == []
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 2  # no connection is waited for


def test_secured_proxy_client_files_name_the_proxy_and_are_private(
    cluster: Cluster, tmp_path: Path
) -> None:
    user = SecuredUser("somebody", "a password")
    values = user.client_values(cluster)
    files = write_files_like(values, ca_of(cluster.data), tmp_path, "instance-1", "127.0.0.1:7")
    assert set(files) == {"librdkafka", "java"}
    for file in files.values():
        assert file.stat().st_mode & 0o077 == 0
        text = file.read_text()
        assert "bootstrap.servers=127.0.0.1:7\n" in text and user.password in text
        assert "sasl.mechanism=SCRAM-SHA-512\n" in text
    assert user.password not in repr(user)


@pytest.mark.parametrize("is_ours", [True, False])
def test_secured_proxy_presents_an_expired_certificate_to_new_connections_only(
    cluster: Cluster, is_ours: bool, tmp_path: Path
) -> None:
    ca = ca_of(cluster.data) if is_ours else tmp_path / "ca.pem"
    tls = proxy_tls(cluster.data) if is_ours else own_tls(cluster.client_config(), ca)
    with ProtocolProxy(cluster.client_config(), tls=tls) as proxy:
        address = proxy.address_for("it")
        config = cluster.client_config(**{"bootstrap.servers": address, "ssl.ca.location": str(ca)})
        with BlockingProducer(config) as producer:
            producer.send("orders", b"x").result()
            proxy.present(is_expired=True)
            before = proxy.failed_handshakes("it")
            with (
                pytest.raises(SslAuthenticationFailed, match="expired"),
                BlockingProducer(config) as late,
            ):
                late.send("orders", b"y").result()
            assert proxy.failed_handshakes("it") > before
            producer.send("orders", b"z").result()
        proxy.present(is_expired=False)
        with BlockingProducer(config) as producer:
            producer.send("orders", b"x").result()


def test_secured_proxy_shortens_logins_so_that_clients_authenticate_again(
    cluster: Cluster,
) -> None:
    handshakes = Counter[int]()  # by connection

    def count(event: Event) -> None:
        if isinstance(event, Request) and event.api == "SaslHandshake":
            handshakes[event.connection.id] += 1

    with ProtocolProxy(cluster.client_config(), [count], tls=proxy_tls(cluster.data)) as proxy:
        config = cluster.client_config(**{"bootstrap.servers": proxy.address_for("it")})
        proxy.shorten_logins(1_500)  # brokers refuse a second login within a second
        with BlockingProducer(config) as producer:

            def writes_after_a_login() -> bool:
                producer.send("orders", b"x").result()
                return max(handshakes.values()) > 1

            assert wait_for(writes_after_a_login, 20)
            proxy.shorten_logins(0)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("password-change", SaslAuthenticationFailed),
        ("reauthentication-fails", SaslAuthenticationFailed),
        ("acl-taken", TopicAuthorizationFailed),
    ],
)
def test_secured_user_with_removed_access_is_refused_until_the_access_is_restored(
    cluster: Cluster, kind: str, error: type[KafkaError]
) -> None:
    user = SecuredUser.admit(cluster, f"user-{kind}")
    removal = user.removals[kind]

    def write() -> None:
        with BlockingProducer({**user.client_values(cluster)}) as producer:
            producer.send("orders", b"x").result()

    write()
    cluster.ask(removal.take)
    with pytest.raises(error):
        write()
    cluster.ask(partial(restore, removal))
    write()


@pytest.mark.in_turn
def test_prove_on_a_new_secured_cluster_judges_an_application() -> None:
    outcome = oncelog.prove(
        [sys.executable, str(PROGRAMS / "transactional.py")],
        faults="lose-answer@EndTxn,kill@before-commit,acl-taken",
        seed=1,
        secure=True,
        start_timeout_s=120.0,
    )
    assert outcome.is_exactly_once and outcome.exit_code == 0, outcome
    assert outcome.met == 3 and outcome.judgement.inputs > 0


@pytest.mark.in_turn
def test_prove_on_an_existing_secured_cluster_judges_an_application(cluster: Cluster) -> None:
    outcome = oncelog.prove(
        [sys.executable, str(PROGRAMS / "transactional.py")],
        faults="lose-answer@EndTxn,kill@before-commit,certificate-expires",
        seed=1,
        bootstrap=cluster.bootstrap,
        command_config=str(client_file(cluster.data, "admin", "java")),
        start_timeout_s=120.0,
    )
    assert outcome.is_exactly_once and outcome.exit_code == 0, outcome
    assert outcome.met == 3 and outcome.judgement.inputs > 0


def test_prove_with_a_command_config_but_no_bootstrap_is_refused() -> None:
    with pytest.raises(Failure, match="--command-config is used only with --bootstrap"):
        oncelog.prove(["true"], command_config="client.properties")


def test_prove_on_a_foreign_cluster_with_the_secure_option_is_refused() -> None:
    with pytest.raises(Failure, match="--secure is used only for a cluster that is started"):
        oncelog.prove(["true"], secure=True, bootstrap="127.0.0.1:1")

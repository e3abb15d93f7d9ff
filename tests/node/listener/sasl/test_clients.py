"""Test SASL logins of aiokafka and librdkafka, with each mechanism."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaException, Producer, admin

from oncelog.coordinator.metadata.commands import AlterScramCredentials
from oncelog.coordinator.security.scram_changes import MECHANISM_IDS, ScramChange
from oncelog.deploy.cluster.ports import free_ports
from oncelog.wire.security.scram_server import HASHES, credential_of

from ....awaiting import until
from ...own_broker import OwnBroker
from ..tls.certificates import Certificates

ADMIN: Any = admin  # its stubs lack SCRAM
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="geheim";'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def broker_with_logins(
    root: Path, certificates: Certificates, **settings: str
) -> AsyncIterator[tuple[OwnBroker, str, str]]:
    plain, secured = free_ports(2)
    given = {
        "listeners": f"OPEN://127.0.0.1:{plain},CLOSED://127.0.0.1:{secured}",
        "listener.security.protocol.map": "OPEN:SASL_PLAINTEXT,CLOSED:SASL_SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(certificates.folder / "broker.pem"),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    broker = OwnBroker(root, settings=given)
    await broker.start()
    try:
        await broker.create("orders", 1)
        changes: list[ScramChange] = []
        for name, number in MECHANISM_IDS.items():
            salted = hashlib.pbkdf2_hmac(HASHES[name], b"geheim", b"salt", 4096)
            kept = credential_of(name, salted, b"salt", 4096)
            changes.append(ScramChange("alice", number, *kept))
        await broker.services.controller.submit(
            AlterScramCredentials(tuple(changes)), timeout_ms=20_000
        )
        yield broker, f"127.0.0.1:{plain}", f"127.0.0.1:{secured}"
    finally:
        await broker.stop()


def aiokafka_options(bootstrap: str, mechanism: str, password: str, tls: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT" if tls is None else "SASL_SSL",
        "ssl_context": tls,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


def librdkafka_options(
    bootstrap: str, mechanism: str, password: str, certificates: Certificates | None
) -> dict[str, Any]:
    secured = certificates is not None
    trust = {"ssl.ca.location": str(certificates.folder / "ca.pem")} if certificates else {}
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL" if secured else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        **trust,
    }


async def test_sasl_clients_log_in_with_each_mechanism(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with broker_with_logins(tmp_path, certificates) as (broker, plain, secured):
        sent = 0
        for mechanism in MECHANISMS:
            for bootstrap, tls in ((plain, None), (secured, certificates.client())):
                options = aiokafka_options(bootstrap, mechanism, "geheim", tls)
                async with AIOKafkaProducer(**options) as producer:
                    await producer.send_and_wait("orders", b"x")
                principals = {
                    str(each.context.principal)
                    for each in broker.server._connections
                    if each.context is not None and each.context.is_let_in
                }
                assert principals <= {"User:alice"}
                trusted = None if tls is None else certificates
                errors = await asyncio.to_thread(
                    _produce, librdkafka_options(bootstrap, mechanism, "geheim", trusted)
                )
                assert errors == [None]
                sent += 2
        options = aiokafka_options(secured, "SCRAM-SHA-512", "geheim", certificates.client())
        consumer: Any = AIOKafkaConsumer("orders", auto_offset_reset="earliest", **options)
        async with consumer:
            for _ in range(sent):
                await asyncio.wait_for(consumer.getone(), 20)


def _produce(options: dict[str, Any]) -> list[Any]:
    errors: list[Any] = []
    producer = Producer(options)
    producer.produce("orders", b"y", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    return errors


async def test_sasl_wrong_password_is_refused_and_never_logged(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncelog.server")
    async with broker_with_logins(tmp_path, certificates) as (broker, plain, _):
        for mechanism in MECHANISMS:
            options = aiokafka_options(plain, mechanism, "falsch", None)
            producer = AIOKafkaProducer(**options)
            with pytest.raises(KafkaConnectionError):
                await producer.start()
            await producer.stop()
        await until(lambda: not broker.server.connection_count)
    for start in ("closed 127.0.0.1: Authentication", "Unable connect"):  # ours, and the client's
        assert sum(each.startswith(start) for each in caplog.messages) == len(MECHANISMS)
    assert "falsch" not in caplog.text and "geheim" not in caplog.text


async def test_scram_users_are_created_described_and_deleted_by_an_admin(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with broker_with_logins(tmp_path, certificates) as (broker, plain, _):
        options = librdkafka_options(plain, "PLAIN", "geheim", None)
        await asyncio.to_thread(_administer, ADMIN.AdminClient(options))
        login = librdkafka_options(plain, "SCRAM-SHA-512", "neu", None) | {"sasl.username": "bob"}
        assert await asyncio.to_thread(_produce, login) == [None]
        assert "neu" not in repr(broker.state.scram_credentials["bob"])


def _administer(client: Any) -> None:
    info = ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_512, 8192)
    upsertion: Any = ADMIN.UserScramCredentialUpsertion("bob", info, b"neu")
    for future in client.alter_user_scram_credentials([upsertion]).values():
        future.result(20)
    found = client.describe_user_scram_credentials(["bob"])["bob"].result(20)
    assert [each.iterations for each in found.scram_credential_infos] == [8192]
    few: Any = ADMIN.UserScramCredentialUpsertion(
        "eve", ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_256, 100), b"neu"
    )
    for future in client.alter_user_scram_credentials([few]).values():
        with pytest.raises(KafkaException, match="Too few iterations"):
            future.result(20)
    with pytest.raises(KafkaException, match="does not exist"):
        client.describe_user_scram_credentials(["eve"])["eve"].result(20)


@pytest.mark.in_turn
async def test_librdkafka_client_reauthenticates_before_its_session_ends(
    tmp_path: Path, certificates: Certificates
) -> None:
    settings = {"connections_max_reauth_ms": "3000"}
    async with broker_with_logins(tmp_path, certificates, **settings) as (broker, plain, _):
        options = librdkafka_options(plain, "SCRAM-SHA-256", "geheim", None)
        producer = Producer(options)
        loop, ends_s = asyncio.get_running_loop(), asyncio.get_running_loop().time() + 5
        errors: list[Any] = []
        begun: dict[int, set[int]] = {}
        while loop.time() < ends_s:
            producer.produce("orders", b"z", on_delivery=lambda error, _: errors.append(error))
            await asyncio.to_thread(producer.flush, 20)
            for each in broker.server._connections:
                if each.context is not None and each.context.login is not None:
                    known = begun.setdefault(each.context.connection_id, set())
                    known.add(each.context.login._begun_ms)
            await asyncio.sleep(0.2)
        assert len(errors) > 5 and set(errors) == {None}
        assert max(map(len, begun.values())) > 1  # again on the same connection
        del producer


async def test_request_before_the_sasl_login_closes_the_connection(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncelog.server")
    async with broker_with_logins(tmp_path, certificates) as (_, plain, _unused):
        host, port = plain.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        request = b"\0\3\0\1\0\0\0\1\xff\xff\0\0\0\0"  # Metadata 1
        writer.write(len(request).to_bytes(4, "big") + request)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write((524_289).to_bytes(4, "big"))
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    assert any("it sent API 3 before it had logged in" in each for each in caplog.messages)
    assert any("a frame of 524289 bytes" in each for each in caplog.messages)

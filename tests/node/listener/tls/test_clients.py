"""Test clients over TLS with certificates: aiokafka also consumes, librdkafka only produces."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Producer

from oncelog.deploy.cluster.ports import free_ports

from ...own_broker import OwnBroker
from .certificates import Certificates


@asynccontextmanager
async def tls_broker(root: Path, certificates: Certificates) -> AsyncIterator[tuple[Any, str]]:
    (port,) = free_ports(1)
    settings = {
        "listeners": f"SSL://127.0.0.1:{port}",
        "ssl.keystore.location": str(certificates.folder / "broker.pem"),
        "ssl.truststore.location": str(certificates.folder / "ca.pem"),
        "ssl.client.auth": "required",
    }
    broker = OwnBroker(root, settings=settings)
    await broker.start()
    try:
        await broker.create("orders", 1)
        yield broker, f"127.0.0.1:{port}"
    finally:
        await broker.stop()


async def test_tls_clients_with_certificates_produce_and_consume(
    tmp_path: Path, certificates: Certificates
) -> None:
    value = b"x" * 700_000
    async with tls_broker(tmp_path, certificates) as (broker, bootstrap):
        options: Any = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_context": certificates.client(certificate=True),
        }
        async with AIOKafkaProducer(max_request_size=1 << 20, **options) as producer:
            for _ in range(3):
                await producer.send_and_wait("orders", value)
        assert broker.config.record_validation == "skeleton"  # not plain loopback
        produced = await asyncio.to_thread(_librdkafka, bootstrap, certificates)
        assert produced == [None]
        consumer: Any = AIOKafkaConsumer("orders", auto_offset_reset="earliest", **options)
        async with consumer:
            found = [await asyncio.wait_for(consumer.getone(), 20) for _ in range(4)]
        assert [len(each.value) for each in found] == [700_000] * 3 + [1]


def _librdkafka(bootstrap: str, certificates: Certificates) -> list[Any]:
    errors: list[Any] = []
    alice = str(certificates.folder / "alice.pem")
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates.folder / "ca.pem"),
            "ssl.certificate.location": alice,
            "ssl.key.location": alice,
        }
    )
    producer.produce("orders", b"y", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    return errors

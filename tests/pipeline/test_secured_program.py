"""The program of docs/spark.md for TLS, SASL and ACLs, as it stands there. With ONCELOG_KAFKA=1.

The user has what that page grants, and nothing else.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from oncelog.client import Admin, BlockingProducer

from ..interop.client_peers import PREPARES, read_to_end
from ..interop.secured.secured_kafka import CLUSTER_NAME, PREFIXED, USERS, SecuredKafka
from ..programs import run_to_end

pytestmark = pytest.mark.kafka
PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
COUNT, LIMIT_S = 25_000, 300.0  # three micro-batches; Spark starts on a busy machine
DECISIONS = "oncelog.spark.decisions"


async def prepare(kafka: SecuredKafka) -> None:
    async with Admin(kafka.bootstrap) as admin:
        for topic in ("orders", "invoices"):
            await admin.create_topic(topic, partitions=3, replication_factor=1)
    await kafka.allow("alice", "topic", "orders", "Read")
    await kafka.allow("alice", "topic", "invoices", "Write")
    await kafka.allow("alice", "topic", DECISIONS, "Create", "Read", "Write", "DescribeConfigs")
    ids = ("Write", "TwoPhaseCommit")
    await kafka.allow("alice", "transactional_id", "oncelog.spark.", *ids, pattern=PREFIXED)
    await kafka.allow("alice", "cluster", CLUSTER_NAME, "DescribeConfigs")


def test_the_program_of_the_page_runs_with_what_the_page_grants(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (program,) = [each for each in programs if "KAFKA_CA_FILE" in each]
    (tmp_path / "invoices.py").write_text(program, encoding="utf-8")
    with SecuredKafka(tmp_path / "kafka", PREPARES) as kafka:
        asyncio.run(prepare(kafka))
        with BlockingProducer(kafka.bootstrap) as producer:
            producer.send_many("orders", [b"%d" % number for number in range(COUNT)])
        environment = {
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": kafka.address("SASL_SSL"),
            "KAFKA_PASSWORD": USERS["alice"],
            "KAFKA_CA_FILE": str(kafka.files.ca),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "invoices.py"]
        done = run_to_end(command, LIMIT_S, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        assert USERS["alice"] not in done.stdout + done.stderr
        found = asyncio.run(read_to_end(kafka.bootstrap, "invoices"))
    numbers = sorted(int((row.value or b"").removeprefix(b"invoice ")) for row in found)
    assert numbers == list(range(COUNT))

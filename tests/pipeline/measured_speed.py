"""Measure Spark's throughput on clusters started for it. docs/measuring.md has the figures.

    python -m tests.pipeline.measured_speed kafka|oncelog [options of oncelog.pipeline.jobs.speed]

The clusters are one Apache Kafka 4.4, in plain text and then with SASL_SSL (TLS 1.3,
SCRAM-SHA-512), or three oncelog nodes in plain text. Kafka and Spark's own connector come from
Maven.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from oncelog.deploy.cluster.local_cluster import Cluster

from ..interop.client_peers import PREPARES
from ..interop.secured.logins import MODULE, USERS
from ..interop.secured.secured_kafka import SERVER_JVM, SecuredKafka
from .source.connector_jars import connector_jars

ADMINISTRATORS = {"super.users": "User:ANONYMOUS;User:alice"}


def client_file(kafka: SecuredKafka, file: Path) -> Path:
    """Write a file with TLS and SASL settings under Java's names, which both connectors read."""
    module = f"{MODULE}.scram.ScramLoginModule required"
    settings = {
        "bootstrap.servers": kafka.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.files.ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} username="alice" password="{USERS["alice"]}";',
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def measure(where: Sequence[str], more: Sequence[str]) -> int:
    folder = connector_jars()[0].parent
    command = [sys.executable, "-P", "-m", "oncelog.pipeline.jobs.speed"]
    command += ["--connector", str(folder), *where, *more]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in ("kafka", "oncelog"):
        print(__doc__, file=sys.stderr)
        return 2
    name, more = sys.argv[1], sys.argv[2:]
    if name == "oncelog":
        with Cluster(nodes=3) as cluster:
            return measure(["--bootstrap", cluster.bootstrap], more)
    with tempfile.TemporaryDirectory(prefix="oncelog-speed-") as folder:
        settings = PREPARES | ADMINISTRATORS
        with SecuredKafka(Path(folder), settings, flags=SERVER_JVM) as kafka:
            file = client_file(kafka, Path(folder) / "client.properties")
            where = ["--bootstrap", kafka.bootstrap, "--command-config", str(file)]
            return measure(where, more)


if __name__ == "__main__":
    sys.exit(main())

"""Test `prove` on a secured Apache Kafka 4.4.

The application logs in through the proxy.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog

from .secured_kafka import SecuredKafka

pytestmark = [pytest.mark.kafka, pytest.mark.cluster, pytest.mark.xdist_group("secured kafka")]
PROGRAM = Path(__file__).parents[2] / "proof" / "prove" / "programs" / "transactional.py"
SETTINGS = {
    "super.users": "User:ANONYMOUS;User:alice",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with SecuredKafka(folder, SETTINGS) as peer:
        yield peer


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SASL_SSL", "SCRAM-SHA-512"), ("SASL_SSL", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-256")],
)
@pytest.mark.in_turn
def test_prove_on_a_secured_apache_kafka_judges_an_application_through_its_proxy(
    kafka: SecuredKafka, protocol: str, mechanism: str, tmp_path: Path
) -> None:
    login = kafka.login(protocol, mechanism)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in login.items()))
    name = f"{protocol}-{mechanism}"
    faults = ["lose-answer@EndTxn", "kill@before-commit"]
    if protocol.endswith("SSL"):
        faults.append("certificate-expires")  # the proxy's
    outcome = oncelog.prove(
        [sys.executable, str(PROGRAM)],
        inputs=f"in-{name}",
        outputs=f"out-{name}",
        faults=",".join(faults),
        seed=1,
        bootstrap=kafka.address(protocol),
        command_config=str(file),
        start_timeout_s=120.0,
    )
    assert outcome.is_exactly_once and outcome.exit_code == 0, outcome
    assert outcome.met == len(faults) and outcome.judgement.inputs > 0

"""Test requests about consumer groups with the coordinator killed before each request.

The requests and the expected answers of Kafka come from `test_same_answers`. A member keeps its
assignment, and the partitions that it must still revoke.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from .cases import consumer_groups
from .comparison import Comparison
from .conftest import TARGETS
from .kafka_peer import KafkaPeer
from .meant_differences import MEANT
from .raw_peer import RawPeer
from .transactional_owner import wait_for_coordinator

pytestmark = [pytest.mark.kafka, pytest.mark.cluster, pytest.mark.chaos]
VERSIONS = (0, 1)  # of both APIs
ONE_SHARD = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
BACK_SOON = {  # Kafka registers a broker again when its last life is over
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
}
SCENARIOS = (
    consumer_groups.consumer_heartbeat,
    consumer_groups.consumer_rebalance,
    consumer_groups.consumer_assigning,
    consumer_groups.consumer_instances,
    consumer_groups.consumer_patterns,
    consumer_groups.consumer_describe,
    consumer_groups.consumer_kinds,
)


class MortalPeer(RawPeer):
    """A broker that can be killed and restarted. Its death closes all members' connections."""

    def __init__(self, name: str, bootstrap: str, bounce: Callable[[], None]) -> None:
        host, port = bootstrap.split(":")
        super().__init__(name, (host, int(port)))
        self._bounce, self._others = bounce, list[RawPeer]()

    def another(self) -> RawPeer:
        self._others.append(super().another())
        return self._others[-1]

    def die_and_return(self) -> None:
        """Kill and restart the broker, and return when the coordinator has loaded its groups."""
        self._bounce()
        for each in (self, *self._others):
            each.close()
        wait_for_coordinator(self, 0, "of any name")


@pytest.fixture(scope="module")
def mortal_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MortalPeer]:
    folder, settings = tmp_path_factory.mktemp("kafka"), ONE_SHARD | BACK_SOON | TARGETS
    with KafkaPeer(folder, settings=settings) as kafka:

        def bounce() -> None:
            kafka.kill(1)
            kafka.start(1)

        peer = MortalPeer("kafka", kafka.bootstrap, bounce)
        yield peer
        peer.close()


@pytest.fixture(scope="module")
def mortal_broker() -> Iterator[MortalPeer]:
    with Cluster(nodes=1, config=ONE_SHARD | TARGETS) as cluster:

        def bounce() -> None:
            cluster.kill(1)
            cluster.start(1)

        peer = MortalPeer("oncelog", cluster.bootstrap, bounce)
        yield peer
        peer.close()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_our_answers_after_coordinator_deaths_equal_the_answers_of_apache_kafka(
    scenario: Callable[[RawPeer, int], Iterator[tuple[str, Any]]],
    version: int,
    mortal_kafka: MortalPeer,
    mortal_broker: MortalPeer,
) -> None:
    def asked(peer: MortalPeer) -> list[tuple[str, Any]]:
        answers = list[tuple[str, Any]]()
        for case, answer in scenario(peer, version):
            answers.append((case, answer))
            peer.die_and_return()
        return answers

    with ThreadPoolExecutor(2) as pool:
        theirs, mine = pool.map(asked, (mortal_kafka, mortal_broker))
    comparison, found = Comparison(MEANT), list[str]()
    for (case, kafka), (same_case, ours) in zip(theirs, mine, strict=True):
        assert case == same_case
        found += map(str, comparison.compare("ConsumerGroupHeartbeat", version, case, kafka, ours))
    assert not found, f"{len(found)} differences\n" + "\n".join(found)

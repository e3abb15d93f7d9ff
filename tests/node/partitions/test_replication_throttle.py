"""Test the replication throttle, which counts bytes and delays throttled replicas."""

import pytest

from oncelog.coordinator.metadata.commands import (
    BROKER_RESOURCE,
    DELETE,
    SET,
    TOPIC_RESOURCE,
    AlterConfigs,
    ConfigOperation,
    CreateTopics,
    NewTopic,
    ResourceConfigs,
)
from oncelog.coordinator.quotas.rate import QuotaRate
from oncelog.node.partitions.replication_throttle import PAUSE_MS_MAX, ReplicationThrottle

from ...coordinator.metadata.metadata_cluster import MetadataCluster
from ..fake_broker import broker_config

TOPIC_ID = b"t" * 16
RATE = {side: f"{side}.replication.throttled.rate" for side in ("leader", "follower")}
REPLICAS = {side: f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
ALL_WINDOWS_MS = 11_000


class Braked:
    """The throttle of broker 1, with a topic of two partitions on brokers 1 and 2."""

    def __init__(self, side: str = "leader") -> None:
        self.side, self.now_ms = side, 50_000
        self.cluster = MetadataCluster((1, 2, 3))
        assignments = ((0, (1, 2)), (1, (1, 2)))
        self.cluster.do(CreateTopics((NewTopic("t", TOPIC_ID, assignments=assignments),)))
        self.throttle = ReplicationThrottle(
            self.cluster.state,
            broker_config(),
            side,  # type: ignore[arg-type]
            lambda: self.now_ms,
        )

    def alter(self, kind: int, name: str, key: str, value: str | None) -> None:
        operation = ConfigOperation(key, DELETE if value is None else SET, value)
        result = self.cluster.do(AlterConfigs((ResourceConfigs(kind, name, (operation,)),)))
        assert [item.error for item in result.items] == [0]

    def limit(self, rate: int | None, broker: str = "1") -> None:
        value = None if rate is None else str(rate)
        self.alter(BROKER_RESOURCE, broker, RATE[self.side], value)

    def list_replicas(self, text: str) -> None:
        self.alter(TOPIC_RESOURCE, "t", REPLICAS[self.side], text)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_throttled_replica_waits_until_its_rate_is_within_the_limit(side: str) -> None:
    braked = Braked(side)
    throttle, key = braked.throttle, (TOPIC_ID, 0)
    assert not throttle.is_on
    braked.limit(1_000)
    braked.list_replicas("0:1")
    assert throttle.is_on
    throttle.note(key, 10_000)
    assert not throttle.holds(key, 4), "so much fits into ten windows"
    throttle.note(key, 5_000)
    assert throttle.holds(key, 4)
    assert throttle.held == {key: None}
    assert throttle.pause_ms() == PAUSE_MS_MAX, "the limit may be another one by then"
    for _ in range(5):
        assert throttle.holds(key, 4)
        braked.now_ms += 1_000
    braked.now_ms += ALL_WINDOWS_MS
    assert not throttle.holds(key, 4)
    assert throttle.released() == [key]
    assert throttle.released() == []


def test_in_sync_and_unlisted_replicas_are_not_throttled() -> None:
    braked = Braked()
    braked.limit(1_000)
    braked.list_replicas("0:1,1:2")
    braked.throttle.note((TOPIC_ID, 0), 50_000)
    assert braked.throttle.holds((TOPIC_ID, 0), 4)
    assert not braked.throttle.holds((TOPIC_ID, 0), 2), "it is in sync"
    assert not braked.throttle.holds((TOPIC_ID, 1), 4), "that is broker 2's replica"
    assert not braked.throttle.holds((TOPIC_ID, 7), 4)
    assert not braked.throttle.holds((b"u" * 16, 0), 4)


def test_bytes_of_unlisted_partitions_do_not_use_the_replication_quota() -> None:
    braked = Braked()
    braked.limit(1_000)
    braked.list_replicas("0:1")
    braked.throttle.note((TOPIC_ID, 1), 50_000)
    assert not braked.throttle.holds((TOPIC_ID, 0), 4)


def test_throttled_replicas_star_lists_every_partition() -> None:
    braked = Braked()
    braked.limit(1_000)
    braked.list_replicas("*")
    braked.throttle.note((TOPIC_ID, 1), 50_000)
    assert braked.throttle.holds((TOPIC_ID, 0), 4)
    braked.list_replicas("")
    assert not braked.throttle.holds((TOPIC_ID, 0), 4), "its topic lists none any more"


def test_throttled_replicas_entry_that_is_not_a_number_lists_no_replica() -> None:
    braked = Braked()
    braked.limit(1_000)
    braked.list_replicas(f"{5_000 * '9'}:1,x:1,0:{5_000 * '9'},:,1:001")
    braked.throttle.note((TOPIC_ID, 1), 50_000)
    assert braked.throttle.holds((TOPIC_ID, 1), 4)
    assert not braked.throttle.holds((TOPIC_ID, 0), 4)


def test_replication_rate_of_all_brokers_applies_to_a_broker_without_a_rate() -> None:
    braked = Braked()
    braked.limit(1_000, broker="")
    assert braked.throttle.is_on
    braked.list_replicas("*")
    braked.throttle.note((TOPIC_ID, 0), 50_000)
    assert braked.throttle.holds((TOPIC_ID, 0), 4)
    braked.limit(1 << 40)
    assert not braked.throttle.holds((TOPIC_ID, 0), 4)
    braked.limit(None)
    braked.limit(None, broker="")
    assert not braked.throttle.is_on


def test_replication_rate_of_another_broker_does_not_apply() -> None:
    braked = Braked()
    braked.limit(1_000, broker="2")
    assert not braked.throttle.is_on


def test_replication_rate_of_zero_is_a_limit() -> None:
    braked = Braked()
    braked.limit(0)
    braked.list_replicas("*")
    braked.throttle.note((TOPIC_ID, 0), 50_000)
    assert braked.throttle.holds((TOPIC_ID, 0), 4)


def test_replication_rate_that_is_exceeded_is_not_computed_for_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    braked = Braked()
    braked.limit(1_000)
    braked.list_replicas("*")
    braked.throttle.note((TOPIC_ID, 0), 1_000_000)
    computed: list[int] = []
    count = QuotaRate.record
    monkeypatch.setattr(QuotaRate, "record", lambda *given: computed.append(1) or count(*given))
    for _ in range(10_000):
        assert braked.throttle.holds((TOPIC_ID, 0), 4)
    assert not computed
    braked.now_ms += PAUSE_MS_MAX
    assert braked.throttle.holds((TOPIC_ID, 0), 4)
    assert len(computed) == 1

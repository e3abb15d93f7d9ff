"""Test the controller's decisions about live brokers, made by its own clock and heartbeats."""

from dataclasses import replace
from typing import Any

import pytest

from oncelog.coordinator.controller.controller import (
    Controller,
    ControllerSettings,
    Heartbeat,
    HeartbeatReply,
)
from oncelog.coordinator.metadata.commands import (
    PREFERRED,
    BeginControlledShutdown,
    Command,
    CreateTopics,
    ElectLeaders,
    FenceBroker,
    NewTopic,
    SetClusterId,
    SetDefaults,
    UnfenceBroker,
    encode_command,
)
from oncelog.wire.errors import ErrorCode

from ..metadata.metadata_cluster import MetadataCluster

SESSION_MS = 1000
TICK_MS = 50


class Watch:
    """A controller with its metadata. The test controls its clock and the heartbeats."""

    def __init__(self, cluster: MetadataCluster, **settings: Any) -> None:
        self.cluster = cluster
        arguments = {
            "cluster_id": "test-cluster",
            "defaults": dict(cluster.state.defaults),
            "session_timeout_ms": SESSION_MS,
            "rebalance_interval_ms": 10_000_000,
        }
        self.controller = Controller(cluster.state, ControllerSettings(**{**arguments, **settings}))
        self.now_ms = 5_000_000
        self.term = 1
        self.controller.elected(self.now_ms, self.term)
        self.deaf: set[int] = set()  # nodes that receive no reply
        self.seen: dict[int, HeartbeatReply] = {}

    def beat(self, *nodes: int, **wishes: Any) -> list[HeartbeatReply]:
        replies = []
        for node in nodes:
            seen = self.seen.get(node, HeartbeatReply())
            heartbeat = Heartbeat(
                node,
                self.cluster.epoch(node),
                self.cluster.index,
                seen_term=seen.term,
                seen_ms=seen.stamp_ms,
                **wishes,
            )
            replies.append(self.controller.heartbeat(heartbeat, self.now_ms))
            if node not in self.deaf:
                self.seen[node] = replies[-1]
        return replies

    def tick(self) -> list[Command]:
        return self.controller.tick(self.now_ms)

    def settle(self, command: Command) -> None:
        self.controller.settled(command, self.cluster.do(command))

    def run(self, duration_ms: int, *alive: int, **wishes: object) -> list[Command]:
        """Let time pass with heartbeats of `alive` brokers, and return the executed commands."""
        done = []
        for _ in range(duration_ms // TICK_MS):
            self.now_ms += TICK_MS
            self.beat(*alive, **wishes)
            for command in self.tick():
                self.settle(command)
                done.append(command)
        return done


@pytest.fixture
def watch() -> Watch:
    cluster = MetadataCluster()
    cluster.topic()
    return Watch(cluster)


def test_broker_without_heartbeats_is_fenced_after_its_session_timeout(watch: Watch) -> None:
    assert watch.run(SESSION_MS, 1, 2) == []
    assert watch.run(2 * TICK_MS, 1, 2) == [FenceBroker(3, watch.cluster.epoch(3))]
    assert watch.cluster.partition().isr == (1, 2)
    assert watch.run(5 * SESSION_MS, 1, 2) == []


def test_broker_without_heartbeat_replies_is_fenced_until_it_gets_replies_again(
    watch: Watch,
) -> None:
    """The broker sends heartbeats and receives no reply, since the links to it are cut."""
    assert watch.run(5 * SESSION_MS, 1, 2, 3) == []
    watch.deaf.add(3)
    assert watch.run(2 * SESSION_MS, 1, 2, 3) == []
    assert watch.run(2 * TICK_MS, 1, 2, 3) == [FenceBroker(3, watch.cluster.epoch(3))]
    assert watch.run(5 * SESSION_MS, 1, 2, 3) == []
    watch.deaf.clear()
    assert watch.run(2 * TICK_MS, 1, 2, 3) == [UnfenceBroker(3, watch.cluster.epoch(3))]
    assert watch.run(5 * SESSION_MS, 1, 2, 3) == []


def test_heartbeat_reply_stamp_of_an_earlier_controller_does_not_prolong_a_session(
    watch: Watch,
) -> None:
    watch.run(SESSION_MS, 1, 2, 3)
    watch.deaf.add(3)
    watch.seen[3] = HeartbeatReply(term=watch.term, stamp_ms=1 << 40)
    watch.controller.elected(watch.now_ms, watch.term + 1)
    watch.seen.pop(1)
    watch.seen.pop(2)
    assert watch.run(2 * SESSION_MS, 1, 2, 3) == []
    assert watch.run(2 * TICK_MS, 1, 2, 3) == [FenceBroker(3, watch.cluster.epoch(3))]


def test_broken_peer_link_fences_a_broker_immediately(watch: Watch) -> None:
    watch.beat(1, 2, 3)
    watch.controller.link_down(1, watch.now_ms)
    assert watch.tick() == [FenceBroker(1, watch.cluster.epoch(1))]


def test_restored_peer_link_fences_no_broker(watch: Watch) -> None:
    watch.controller.link_down(1, watch.now_ms)
    watch.controller.link_up(1)
    assert watch.tick() == []
    watch.controller.link_down(2, watch.now_ms)
    watch.beat(2)
    assert watch.tick() == []


def test_controller_repeats_a_lost_command_and_no_command_in_progress(watch: Watch) -> None:
    watch.controller.link_down(1, watch.now_ms)
    (fence,) = watch.tick()
    assert watch.tick() == []
    watch.controller.settled(fence, None)
    assert watch.tick() == [fence]


def test_newly_elected_controller_restarts_the_session_of_every_broker(watch: Watch) -> None:
    watch.run(SESSION_MS - TICK_MS, 1, 2)
    watch.controller.resigned()
    assert watch.tick() == []
    watch.controller.elected(watch.now_ms, 2)
    assert watch.run(SESSION_MS, 1, 2) == []
    assert len(watch.run(2 * TICK_MS, 1, 2)) == 1


def test_controller_after_a_pause_of_its_process_fences_no_broker(watch: Watch) -> None:
    watch.beat(1, 2, 3)
    watch.now_ms += 60_000
    assert watch.tick() == []
    assert watch.run(SESSION_MS // 2, 1, 2, 3) == []


def test_fenced_broker_that_serves_and_knows_its_registration_is_unfenced(watch: Watch) -> None:
    cluster = watch.cluster
    epoch = cluster.register(3)
    behind = Heartbeat(3, epoch, epoch - 1)
    reply = watch.controller.heartbeat(behind, watch.now_ms)
    assert reply.is_fenced and not reply.error
    assert watch.tick() == []
    watch.beat(3, wants_unfence=False)
    assert watch.tick() == []
    watch.beat(3)
    (unfence,) = watch.tick()
    assert unfence == UnfenceBroker(3, epoch)
    watch.settle(unfence)
    assert not watch.beat(3)[0].is_fenced


def test_fenced_broker_with_a_broken_link_stays_fenced(watch: Watch) -> None:
    watch.cluster.register(3)
    watch.beat(3)
    watch.run(0)
    watch.controller.link_down(3, watch.now_ms)
    assert watch.tick() == []


def test_heartbeat_of_another_broker_incarnation_is_refused(watch: Watch) -> None:
    stale = Heartbeat(1, watch.cluster.epoch(1) - 1, 0)
    reply = watch.controller.heartbeat(stale, watch.now_ms)
    assert reply.error == ErrorCode.STALE_BROKER_EPOCH
    reply = watch.controller.heartbeat(Heartbeat(9, 1, 0), watch.now_ms)
    assert reply.error == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_broker_incarnation_that_registers_starts_a_new_session(watch: Watch) -> None:
    watch.run(SESSION_MS, 1, 2)  # 3 is almost dead
    watch.cluster.start(3)
    assert watch.run(SESSION_MS, 1, 2) == []


def test_controlled_shutdown_moves_leaders_and_waits_until_all_brokers_know(watch: Watch) -> None:
    cluster = watch.cluster
    watch.beat(1, 2, 3)
    watch.beat(1, wants_shutdown=True)
    (begin,) = watch.tick()
    assert begin == BeginControlledShutdown(1, cluster.epoch(1))
    watch.settle(begin)
    assert cluster.partition().leader == 2
    assert watch.tick() == [], "2 and 3 have not applied it"
    watch.beat(2)
    assert watch.tick() == []
    watch.beat(3)
    (fence,) = watch.tick()
    assert fence == FenceBroker(1, cluster.epoch(1))
    assert not watch.beat(1, wants_shutdown=True)[0].may_stop
    watch.settle(fence)
    assert watch.beat(1, wants_shutdown=True)[0].may_stop
    assert watch.tick() == [], "it is not unfenced while it wants to stop"


def test_controlled_shutdown_of_the_last_broker_is_allowed() -> None:
    cluster = MetadataCluster((1,))
    cluster.topic("t", (1,))
    watch = Watch(cluster)
    done = watch.run(4 * TICK_MS, 1, wants_shutdown=True)
    assert [type(command) for command in done] == [BeginControlledShutdown, FenceBroker]
    assert watch.beat(1, wants_shutdown=True)[0].may_stop


def test_broker_that_dies_during_its_controlled_shutdown_is_fenced(watch: Watch) -> None:
    watch.beat(1, 2, 3)
    watch.beat(1, wants_shutdown=True)
    (begin,) = watch.tick()
    watch.settle(begin)
    watch.controller.link_down(1, watch.now_ms)
    assert watch.tick() == [FenceBroker(1, watch.cluster.epoch(1))]


def test_leader_rebalance_moves_leaders_to_their_preferred_replicas() -> None:
    cluster = MetadataCluster()
    cluster.topic("t", (1, 2, 3), (2, 3, 1))
    cluster.topic("u", (1, 2))
    cluster.die(1)
    cluster.start(1)
    cluster.set_isr(2, 3, 1, name="t")
    watch = Watch(cluster, rebalance_interval_ms=500)
    assert watch.run(450, 1, 2, 3) == []
    assert watch.run(100, 1, 2, 3) == [ElectLeaders(PREFERRED, (("t", 0),))]
    assert cluster.partition("t").leader == 1
    assert watch.run(2000, 1, 2, 3) == [], "u is imbalanced, but its first replica not in sync"


def test_leader_rebalance_command_for_many_partitions_is_bounded() -> None:
    cluster = MetadataCluster((1, 2))
    names = [f"{i:03}".ljust(249, "x") for i in range(200)]
    for i, name in enumerate(names):
        topic = NewTopic(name, f"{i:016}".encode(), assignments=((0, (1, 2)),))
        cluster.state.apply(encode_command(CreateTopics((topic,))), 100 + i, 1)
    cluster.index = 1000
    cluster.die(1)
    cluster.start(1)
    for name in names:
        partition = cluster.partition(name)
        isr = (2, 1)
        cluster.state.put_partition((name, 0), replace(partition, isr=isr, elr=()))
    watch = Watch(cluster, rebalance_interval_ms=100)
    commands = watch.run(2000, 1, 2)
    assert len(commands) == 2 and all(len(encode_command(c)) < 60_000 for c in commands)
    assert not list(cluster.state.imbalanced_partitions())


def test_leader_rebalance_can_be_disabled() -> None:
    cluster = MetadataCluster()
    cluster.topic()
    cluster.die(1)
    cluster.start(1)
    cluster.set_isr(2, 3, 1)
    watch = Watch(cluster, rebalance_interval_ms=500, rebalances_leaders=False)
    assert watch.run(2000, 1, 2, 3) == []


def test_controller_proposes_the_configured_cluster_id_and_defaults_once() -> None:
    watch = Watch(MetadataCluster(()), cluster_id="x", defaults={"num.partitions": "9"})
    assert watch.run(TICK_MS) == [SetDefaults({"num.partitions": "9"})]
    assert watch.run(TICK_MS) == []
    watch.cluster.state.cluster_id = ""
    assert watch.run(TICK_MS) == [SetClusterId("x", {"num.partitions": "9"})]
    assert watch.cluster.state.cluster_id == "x"


def test_controller_without_a_configured_cluster_id_proposes_none() -> None:
    """A controller once proposed an empty cluster id at each tick, 22 times a second."""
    watch = Watch(MetadataCluster(()), cluster_id="")
    watch.cluster.state.cluster_id = ""
    watch.run(TICK_MS)
    assert watch.run(20 * TICK_MS) == []


def test_controller_that_does_not_lead_its_raft_group_proposes_nothing() -> None:
    cluster = MetadataCluster()
    controller = Controller(cluster.state, ControllerSettings(cluster_id="other"))
    controller.link_down(1, 0)
    assert controller.tick(10_000_000) == []

"""Test requests of brokers to the controller, with its discovery, forwarding and retries."""

import asyncio
from typing import Any

import pytest

from oncelog.coordinator.controller.controller import Heartbeat
from oncelog.coordinator.controller.messages import ControllerReply, ReplyStatus
from oncelog.coordinator.metadata.cluster_model import BrokerRegistration
from oncelog.coordinator.metadata.commands import (
    BYTES_AT_ONCE_MAX,
    ITEMS_MAX,
    AllocateProducerIds,
    AlterConfigs,
    Command,
    ConfigOperation,
    CreateTopics,
    DeleteTopics,
    FailReplicas,
    FenceBroker,
    NewTopic,
    RegisterBroker,
    ResourceConfigs,
    TopicReference,
    encode_command,
)
from oncelog.coordinator.metadata.config_checks import ConfigValidators
from oncelog.coordinator.metadata.results import Item, Result, decode_result
from oncelog.replication.messages import PeerMessage
from oncelog.replication.peer.codec import decode_message
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.wire.errors import (
    ErrorCode,
    InvalidConfig,
    PolicyViolation,
    RequestTimedOut,
    StaleBrokerEpoch,
)

from ...awaiting import settle, until
from ...coordinator.metadata.metadata_cluster import topic_id
from ..counted_lines import LINES_A_SLICE, CountingLoop, Lines
from .small_cluster import SmallCluster, running_cluster


def registration(node: int, number: int = 1) -> RegisterBroker:
    return RegisterBroker(
        node, bytes([number]) * 16, "boot", "localhost", 9000 + node, None, "small"
    )


def creation(name: str = "t", **arguments: Any) -> CreateTopics:
    return CreateTopics((NewTopic(name, topic_id(name), 1, 1, **arguments),))


async def bring_up(cluster: SmallCluster, *nodes: int) -> None:
    for node in nodes:
        epoch = (await cluster.clients[node].submit(registration(node))).broker_epoch
        heartbeat = Heartbeat(node, epoch, cluster.groups[node].applied_index)
        while (await cluster.clients[node].heartbeat(heartbeat, timeout_ms=1000)).is_fenced:
            await asyncio.sleep(0.001)


def broker(cluster: SmallCluster, node: int) -> BrokerRegistration:
    return cluster.groups[1].state.brokers[node]


@pytest.mark.parametrize("node", [1, 2])
async def test_broker_on_any_node_registers_and_is_unfenced(
    node: int, cluster: SmallCluster
) -> None:
    await bring_up(cluster, node)
    assert broker(cluster, node).is_active
    assert cluster.groups[3].state.brokers[node].is_active
    assert bool(cluster.requests) == (node != 1), "the leader asks itself directly"


async def test_controller_request_to_a_follower_is_redirected_to_the_leader(
    cluster: SmallCluster,
) -> None:
    cluster.leader_known_by[3] = 2  # out of date
    await bring_up(cluster, 3)
    assert [peer for _, peer, _ in cluster.requests[:2]] == [2, 1]


async def test_controller_request_without_a_leader_waits_for_an_election(
    cluster: SmallCluster,
) -> None:
    cluster.elect(None)
    asked = asyncio.ensure_future(cluster.clients[2].submit(registration(2)))
    await asyncio.sleep(0.05)
    assert not asked.done()
    cluster.elect(3)
    assert (await asked).broker_epoch > 0


async def test_controller_request_without_an_answer_times_out(cluster: SmallCluster) -> None:
    cluster.down.add(1)
    with pytest.raises(RequestTimedOut, match="node 1 is down"):
        await cluster.clients[2].submit(registration(2), timeout_ms=60)
    cluster.elect(None)
    with pytest.raises(RequestTimedOut, match="no controller"):
        await cluster.clients[2].submit(registration(2), timeout_ms=60)


async def test_controller_operation_with_a_lost_answer_returns_its_first_outcome(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1)
    length = len(cluster.log)
    cluster.lost_answers = 2
    (item,) = (await cluster.clients[2].submit(creation())).items
    assert item.error == ErrorCode.NONE and item.topic_id == topic_id("t")
    assert len(cluster.log) - length == 3, "proposed three times, done once"
    cluster.lost_answers = 1
    delete = DeleteTopics((TopicReference("t"),))
    assert (await cluster.clients[3].submit(delete)).items[0].error == ErrorCode.NONE
    (item,) = (await cluster.clients[2].submit(delete)).items
    assert item.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_broker_registration_with_a_lost_answer_keeps_its_epoch(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1)
    cluster.lost_answers = 1
    result = await cluster.clients[2].submit(registration(2))
    assert result.broker_epoch == broker(cluster, 2).broker_epoch
    assert len(cluster.log) > result.broker_epoch


async def test_controller_answer_is_returned_after_the_local_metadata_has_applied_it(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1)
    lagging = cluster.groups[2]
    lagging.is_lagging = True
    asked = asyncio.ensure_future(cluster.clients[2].submit(creation()))
    await asyncio.sleep(0.05)
    assert "t" in cluster.groups[1].state.topics and not asked.done()
    lagging.is_lagging = False
    lagging.catch_up()
    await asked
    assert "t" in lagging.state.topics
    lagging.is_lagging = True
    with pytest.raises(RequestTimedOut):
        await cluster.clients[2].submit(creation("u"), timeout_ms=60)


async def test_broker_with_a_broken_link_to_the_controller_is_fenced_before_its_session_timeout(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1, 2, 3)
    cluster.link(1, 2, False)
    await until(lambda: broker(cluster, 2).is_fenced)
    assert broker(cluster, 3).is_active


async def test_broker_silent_for_its_session_timeout_is_fenced() -> None:
    async with running_cluster(session_timeout_ms=200) as cluster:
        await bring_up(cluster, 3)
        await until(lambda: broker(cluster, 3).is_fenced)


@pytest.mark.parametrize("session_timeout_ms", [100, 200, 400, 1_500])
async def test_controller_tick_interval_of_short_sessions_is_within_the_maximum_clock_step(
    session_timeout_ms: int,
) -> None:
    async with running_cluster(session_timeout_ms=session_timeout_ms) as cluster:
        service = cluster.services[1]
        step_ms_max = service.controller._settings.clock_step_ms_max
        # Aligned to tenths of a second, a pause may be half as long again.
        assert 0 < 1.5 * service._tick_ms <= step_ms_max


async def test_newly_elected_controller_fences_a_broker_with_a_broken_link(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1, 2, 3)
    cluster.link(2, 1, False)  # the leader died; node 2 saw its link break
    cluster.link(2, 3, False)
    cluster.link(2, 3, True)
    cluster.elect(2)
    state = cluster.groups[2].state
    await until(lambda: state.brokers[1].is_fenced)
    assert state.brokers[3].is_active


async def test_producer_ids_are_fetched_in_blocks_shared_by_waiting_requests(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1, 2)
    epoch = broker(cluster, 2).broker_epoch
    client = cluster.clients[2]
    ids = await asyncio.gather(*[client.next_producer_id(epoch) for _ in range(950)])
    assert sorted(ids) == list(range(950))
    asked = [r for r in cluster.requests if r[2] == PeerMessage.PRODUCER_IDS]
    assert len(asked) == 2, "one when there was none, one ahead of time"
    assert await cluster.clients[1].next_producer_id(broker(cluster, 1).broker_epoch) == 2000


async def test_deposed_broker_incarnation_gets_no_producer_ids(cluster: SmallCluster) -> None:
    await bring_up(cluster, 2)
    with pytest.raises(StaleBrokerEpoch):
        await cluster.clients[2].next_producer_id(1)


async def test_controller_refuses_commands_that_do_not_belong_to_the_kind_of_their_message(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1, 2)
    fence = encode_command(FenceBroker(2, broker(cluster, 2).broker_epoch))
    for kind, payload in (
        (PeerMessage.ADMIN, fence),
        (PeerMessage.ADMIN, encode_command(registration(3))),
        (PeerMessage.REGISTER_BROKER, encode_command(creation())),
        (PeerMessage.ALTER_PARTITION, b"garbage"),
        (PeerMessage.HEARTBEAT, b"garbage"),
    ):
        header, _ = await cluster.links[2].request(1, kind, payload, timeout_ms=1000)
        result = decode_result(decode_message(ControllerReply, header).payload)
        assert result.error == ErrorCode.INVALID_REQUEST and result.message
    assert broker(cluster, 2).is_active and not cluster.groups[1].state.topics


def validate(configs) -> None:
    if "bad" in configs:
        raise InvalidConfig("bad is no config")


async def test_invalid_configs_are_refused_before_a_command_is_proposed() -> None:
    validators = ConfigValidators(validate, validate, validate, validate)
    async with running_cluster(validators=validators) as cluster:
        await bring_up(cluster, 1)
        client = cluster.clients[2]
        length = len(cluster.log)
        (item,) = (await client.submit(creation("x", configs={"bad": "1"}))).items
        assert (item.name, item.error) == ("x", ErrorCode.INVALID_CONFIG)
        assert item.message == "bad is no config" and len(cluster.log) == length
        mixed = CreateTopics(
            (
                NewTopic("a", topic_id("a"), 1, 1, configs={"bad": "1"}),
                NewTopic("b", topic_id("b"), 1, 1),
                NewTopic("!", topic_id("c"), 1, 1, configs={"bad": "1"}),
            )
        )
        result = await client.submit(mixed)
        assert [(i.name, i.error) for i in result.items] == [
            ("a", ErrorCode.INVALID_CONFIG),
            ("b", ErrorCode.NONE),
            ("!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        resources = (
            ResourceConfigs(2, "b", (ConfigOperation("bad", 0, "1"),)),
            ResourceConfigs(4, "", (ConfigOperation("bad", 0, "1"),)),
            ResourceConfigs(4, "1", (ConfigOperation("good", 0, "1"),)),
            ResourceConfigs(2, "none", (ConfigOperation("bad", 0, "1"),)),
        )
        result = await client.submit(AlterConfigs(resources))
        assert [(i.resource_type, i.name, i.error) for i in result.items] == [
            (2, "b", ErrorCode.INVALID_CONFIG),
            (4, "", ErrorCode.INVALID_CONFIG),
            (4, "1", ErrorCode.NONE),
            (2, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


async def test_controller_request_that_is_long_is_split_and_its_results_joined(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1)
    names = [f"{'topic' * 10}-{i}" for i in range(2000)]
    topics = tuple(NewTopic(name, f"{i:016}".encode(), 1, 1) for i, name in enumerate(names))
    length = len(cluster.log)
    result = await cluster.clients[2].submit(CreateTopics(topics))
    assert [item.name for item in result.items] == names
    assert all(item.error == 0 for item in result.items)
    assert len(cluster.log) - length > 1
    huge = tuple((i, (1,)) for i in range(30_000))
    with pytest.raises(PolicyViolation):
        topic = NewTopic("huge", topic_id("huge"), assignments=huge)
        await cluster.clients[2].submit(CreateTopics((topic,)))


def test_results_that_are_due_at_once_are_encoded_for_peers_over_many_loop_turns() -> None:
    """One write of the journal may commit long commands of many brokers."""
    lines = Lines()

    async def test() -> None:
        committed = asyncio.Event()
        proposed: list[bytes] = []

        async def submit(command: bytes, *, timeout_ms: float = 0) -> Result:
            proposed.append(command)
            await committed.wait()
            return Result(items=(Item(name="unknown"),) * ITEMS_MAX)

        command = encode_command(DeleteTopics((TopicReference("unknown"),) * ITEMS_MAX))
        replies: list[bytes] = []
        async with running_cluster(work=lambda: SlicedWork(lines.clock)) as cluster:
            cluster.groups[1].submit = submit
            with lines.counted():
                for peer in range(50):
                    handle = cluster.links[1].handlers[PeerMessage.ADMIN]
                    handle(peer, command, [], lambda header, _: replies.append(header))
                await until(lambda: proposed.count(command) == 50)
                committed.set()
                await until(lambda: len(replies) == 50)
        results = [decode_result(decode_message(ControllerReply, each).payload) for each in replies]
        assert all(len(result.items) == ITEMS_MAX for result in results)

    with asyncio.Runner(loop_factory=lambda: CountingLoop(lines)) as runner:
        runner.run(test())
    assert lines.longest < 20 * LINES_A_SLICE, lines.busiest


async def test_controller_with_its_maximum_of_proposals_refuses_commands_before_decoding_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncelog.node.controller.service.PROPOSALS_MAX", 1)
    works: list[SlicedWork] = []

    def work() -> SlicedWork:
        works.append(SlicedWork())
        return works[-1]

    async with running_cluster(work=work) as cluster:
        handle = cluster.links[1].handlers[PeerMessage.ADMIN]
        command = encode_command(DeleteTopics((TopicReference("unknown"),) * ITEMS_MAX))
        garbage = bytes(BYTES_AT_ONCE_MAX + 1)
        replies: list[ControllerReply] = []

        def reply(header: bytes, _: object) -> None:
            replies.append(decode_message(ControllerReply, header))

        for payload in (garbage, command):
            handle(2, garbage, [], reply)
            handle(3, payload, [], reply)
            await asyncio.sleep(0)
            assert works[0].has_jobs and not works[0].clients.has_jobs, (
                "reports of failed logs wait for clients"
            )
            (refusal,) = replies
            assert refusal.status == ReplyStatus.RETRY and "overloaded" in refusal.reason
            await until(lambda: len(replies) == 2)
            result = decode_result(replies[1].payload)
            assert result.error == ErrorCode.INVALID_REQUEST, "a failed decoding ends the request"
            replies.clear()
        handle(2, command, [], reply)
        await until(lambda: len(replies) == 1)
        assert len(decode_result(replies[0].payload).items) == ITEMS_MAX


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        (PeerMessage.PRODUCER_IDS, AllocateProducerIds(3, 1)),
        (PeerMessage.ADMIN, FailReplicas(3, 1, ((bytes(16), 0),))),
    ],
)
async def test_controller_with_its_maximum_of_proposals_serves_requests_of_brokers(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, kind: PeerMessage, command: Command
) -> None:
    """Clients that fill the controller must not stop ISR changes and moves of leaderships."""
    monkeypatch.setattr("oncelog.node.controller.service.PROPOSALS_MAX", 1)
    handlers, replies = cluster.links[1].handlers, list[ControllerReply]()
    handlers[PeerMessage.ADMIN](2, bytes(BYTES_AT_ONCE_MAX + 1), [], lambda *_: None)
    handlers[kind](
        3,
        encode_command(command),
        [],
        lambda header, _: replies.append(decode_message(ControllerReply, header)),
    )
    await until(lambda: len(replies) == 1)
    assert replies[0].status == ReplyStatus.DONE, replies[0].reason
    assert decode_result(replies[0].payload).error == ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_controller_service_that_is_stopped_serves_no_request_and_proposes_nothing(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1, 2)
    await cluster.services[1].stop()
    length = len(cluster.log)
    cluster.link(1, 2, False)
    await asyncio.sleep(0.1)
    assert len(cluster.log) == length
    with pytest.raises(RequestTimedOut):
        await cluster.clients[2].submit(creation(), timeout_ms=50)


def test_controller_result_without_items_is_decoded() -> None:
    assert decode_result(b"\x90") == Result()


@pytest.mark.parametrize("asked", [1, 2])
async def test_quorum_description_requested_from_any_node_comes_from_the_leader(
    asked: int, cluster: SmallCluster
) -> None:
    """A follower does not know the offsets of other nodes, so it requests them from the leader."""
    await bring_up(cluster, 1, 2, 3)
    quorum = await cluster.clients[asked].describe_quorum(timeout_ms=1_000)
    assert quorum.leader_id == 1
    assert {voter.node_id for voter in quorum.voters} == {1, 2, 3}
    assert all(voter.log_end == len(cluster.log) + 1 for voter in quorum.voters)
    assert all(0 <= voter.contact_age_ms < 10_000 for voter in quorum.voters)
    assert all(voter.caught_up_age_ms == -1 for voter in quorum.voters)


async def test_heartbeat_unanswered_by_a_paused_controller_is_sent_to_the_next_controller(
    cluster: SmallCluster,
) -> None:
    """A broker that waits a second for the first controller may lose its session of 1.5 s."""
    await bring_up(cluster, 2)
    heartbeat = Heartbeat(2, broker(cluster, 2).broker_epoch, cluster.groups[2].applied_index)
    cluster.silent.add(1)
    asked = asyncio.ensure_future(cluster.clients[2].heartbeat(heartbeat, timeout_ms=1_200))
    await asyncio.sleep(0.02)
    cluster.elect(3)
    async with asyncio.timeout(0.8):
        assert (await asked).error == ErrorCode.NONE


async def test_heartbeat_over_a_slow_link_is_answered_in_time(cluster: SmallCluster) -> None:
    """Attempts that end after 300 ms never succeed with a controller 400 ms away."""
    await bring_up(cluster, 2)
    heartbeat = Heartbeat(2, broker(cluster, 2).broker_epoch, cluster.groups[2].applied_index)
    cluster.delay_ms = 400
    answer = await cluster.clients[2].heartbeat(heartbeat, timeout_ms=1_200)
    assert answer.error == ErrorCode.NONE
    assert answer.metadata_index == cluster.groups[1].applied_index


async def test_metadata_catch_up_returns_when_all_committed_entries_are_applied(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 1, 2)
    group = cluster.groups[2]
    group.is_lagging = True
    await cluster.clients[1].submit(creation())
    deadline_ms = int(asyncio.get_running_loop().time() * 1000) + 10_000
    waiting = asyncio.create_task(cluster.clients[2].catch_up(deadline_ms))
    await settle()
    assert not waiting.done()
    group.is_lagging = False
    group.catch_up()
    await waiting
    assert "t" in group.state.topics


async def test_metadata_catch_up_of_many_callers_during_a_request_sends_one_more_request(
    cluster: SmallCluster,
) -> None:
    """The answer on its way may be older than metadata changes of which later callers know."""
    await bring_up(cluster, 2)
    cluster.delay_ms = 1000
    client, loop = cluster.clients[2], asyncio.get_running_loop()
    deadline_ms = int(loop.time() * 1000) + 10_000
    first = asyncio.create_task(client.catch_up(deadline_ms))
    await settle()
    later = [asyncio.create_task(client.catch_up(deadline_ms)) for _ in range(50)]
    await settle()
    before = cluster.requests.count((2, 1, PeerMessage.DESCRIBE_QUORUM))
    cluster.delay_ms = 0
    await asyncio.gather(first, *later)
    assert before == 1
    assert cluster.requests.count((2, 1, PeerMessage.DESCRIBE_QUORUM)) == 2


async def test_metadata_catch_up_without_a_controller_ends_at_its_deadline(
    cluster: SmallCluster,
) -> None:
    await bring_up(cluster, 2)
    cluster.elect(None)
    await cluster.clients[2].catch_up(int(asyncio.get_running_loop().time() * 1000) + 20)

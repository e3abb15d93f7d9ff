"""What the schedule does to clients, their connections, their groups, and to topics."""

import contextlib
from typing import TYPE_CHECKING

from ...client.producer import Producer
from ...wire.errors import KafkaError, error_for
from ..faults.schedule import Planned
from .load.settings import APPEND
from .stage import Action, Fault, NotHit, Stage

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...client.cluster_view import Partition

SEEN_WITHIN_S = 4.0
MOVED_WITHIN_S = 20.0
PRODUCE, END_TXN, TXN_OFFSET_COMMIT, ALTER_PARTITION_REASSIGNMENTS = 0, 26, 28, 45
HELD_REQUESTS = (END_TXN, PRODUCE, TXN_OFFSET_COMMIT)
CHURN_PREFIX = "churn-"
CONFIGS = (
    ("segment.bytes", "1048576"),
    ("flush.messages", "1"),
    ("max.message.bytes", "2097152"),
    ("index.interval.bytes", "1024"),
)


def _worker_kill(stage: Stage, planned: Planned, fault: Fault) -> None:
    name = planned.pick(0, stage.workers.names)
    pid = stage.workers.kill(name)
    fault.hit(f"{name}, pid {pid}")
    stage.sleep(planned.between(1, 0.0, 1.0))
    stage.workers.restart(name)


def _worker_pause(stage: Stage, planned: Planned, fault: Fault) -> None:
    name = planned.pick(0, stage.workers.names)
    pid = stage.workers.pause(name)
    try:
        fault.hit(f"{name}, pid {pid}")
        session_s = stage.settings.session_timeout_ms / 1000
        stage.sleep(planned.between(1, 0.3, 2.0) * session_s)
    finally:
        stage.workers.resume(name)


def _member_joins(stage: Stage, planned: Planned, fault: Fault) -> None:
    name, group = "extra", stage.settings.group

    def members() -> set[str]:
        found = stage.cluster.ask(lambda admin: admin.groups.describe(group))
        return {member.member_id for member in found.members}

    before = members()
    stage.workers.start(name, stage.extra_order)
    try:
        stage.until(lambda: bool(members() - before), 2 * SEEN_WITHIN_S, "another member")
        fault.hit(f"group {group}")
        stage.sleep(planned.between(1, 0.5, 3.0))
    finally:
        stage.workers.remove(name)


def _client_cut(stage: Stage, planned: Planned, fault: Fault) -> None:
    entry = planned.pick(0, stage.cluster.file.nodes)
    before = stage.proxies.dropped
    stage.proxies.cut(entry.port)
    try:
        stage.until(lambda: stage.proxies.dropped > before, SEEN_WITHIN_S, "a lost request")
        fault.hit(f"clients to node {entry.node_id}")
        stage.sleep(planned.between(1, 0.3, 4.0))
    finally:
        stage.proxies.heal()


def _client_delay(stage: Stage, planned: Planned, fault: Fault) -> None:
    entry = planned.pick(0, stage.cluster.file.nodes)
    before, delay_ms = stage.proxies.delayed, int(planned.between(2, 20, 400))
    stage.proxies.delay(entry.port, delay_ms)
    try:
        stage.until(lambda: stage.proxies.delayed > before, SEEN_WITHIN_S, "a late request")
        fault.hit(f"clients to node {entry.node_id} by {delay_ms} ms")
        stage.sleep(planned.between(1, 0.5, 2.5))
    finally:
        stage.proxies.heal()


def _client_hold(stage: Stage, planned: Planned, fault: Fault) -> None:
    """Held for longer than its client waits, mostly: it arrives when nobody expects it."""
    api_key = planned.pick(0, HELD_REQUESTS)
    before = stage.proxies.held
    stage.proxies.hold(api_key)
    try:
        stage.until(lambda: stage.proxies.held > before, SEEN_WITHIN_S, "a request to hold")
        fault.hit(f"a request of API {api_key}")
        stage.sleep(stage.settings.request_timeout_ms / 1000 * planned.between(1, 0.4, 1.6))
    finally:
        stage.proxies.heal()


def _topic_churn(stage: Stage, planned: Planned, fault: Fault) -> None:
    topic = f"{CHURN_PREFIX}{int(planned.numbers[0] * 1e6)}"
    partitions = int(planned.between(1, 1, 5))

    async def make(admin: "Admin") -> None:
        await admin.create_topic(
            topic, partitions=partitions, replication_factor=stage.settings.replication_factor
        )

    async def write(admin: "Admin") -> int:
        async with Producer(admin.view, delivery_timeout_ms=5_000, max_block_ms=5_000) as producer:
            return (await (await producer.send(topic, b"x", partition=0))).offset

    def is_gone() -> bool:
        found = stage.cluster.ask(lambda admin: admin.describe_topics())
        return all(p.topic != topic for p in found)

    stage.cluster.ask(make)
    try:
        stage.until(lambda: not is_gone(), SEEN_WITHIN_S, f"topic {topic}")
        fault.hit(topic)
        stage.cluster.ask(write)
    finally:
        stage.cluster.ask(lambda admin: admin.delete_topics([topic]))
    stage.until(is_gone, SEEN_WITHIN_S, f"the end of topic {topic}")


def _config_change(stage: Stage, planned: Planned, fault: Fault) -> None:
    name, value = planned.pick(0, CONFIGS)

    def is_in_force() -> bool:
        found = stage.cluster.ask(lambda admin: admin.describe_configs(APPEND))
        return any(c.name == name and c.value == value for c in found)

    stage.cluster.ask(lambda admin: admin.alter_configs(APPEND, {name: value}))
    try:
        stage.until(is_in_force, SEEN_WITHIN_S, f"{name}={value}")
        fault.hit(f"{APPEND}: {name}={value}")
        stage.sleep(planned.between(1, 0.2, 2.0))
    finally:
        stage.cluster.ask(lambda admin: admin.alter_configs(APPEND, {name: None}))


def _reassignment(stage: Stage, planned: Planned, fault: Fault) -> None:
    """One replica fewer, then all again in another order; with one order left: another order."""
    partition = planned.pick(0, range(stage.settings.append_partitions))
    nodes = stage.cluster.node_ids
    at = planned.pick(1, range(len(nodes)))
    order = (nodes[at:] + nodes[:at])[: stage.settings.replication_factor]
    _move(stage, partition, order[: max(2, len(order) - 1)])
    try:
        fault.hit(f"{APPEND}/{partition} to {order}")
        stage.sleep(planned.between(2, 0.1, 1.0))
    finally:
        _move(stage, partition, order)


def _move(stage: Stage, partition: int, replicas: list[int]) -> None:
    wanted = [{"partition_index": partition, "replicas": replicas}]
    request = {
        "timeout": 10_000,
        "allow_replication_factor_change": True,
        "topics": [{"name": APPEND, "partitions": wanted}],
    }

    async def ask(admin: "Admin") -> None:
        connection = await admin.view.any_broker()
        answer = await connection.call(ALTER_PARTITION_REASSIGNMENTS, request)
        codes = [int(p.error_code) for t in answer.responses for p in t.partitions]
        for code in (int(answer.error_code), *codes):
            if code:
                raise error_for(code)

    def has_moved() -> bool:
        return list(_described(stage, partition).replicas) == replicas

    stage.insist(lambda: stage.cluster.ask(ask), MOVED_WITHIN_S)
    stage.until(has_moved, MOVED_WITHIN_S, f"{APPEND}/{partition} on {replicas}")


def _elect_leaders(stage: Stage, planned: Planned, fault: Fault) -> None:
    """The preferred replicas lead again; where they do already, others become preferred before.

    Partition by partition: some may be away, or fall behind at this very moment.
    """
    for partition in range(stage.settings.append_partitions):
        key = (APPEND, partition)
        now = _described(stage, partition)
        preferred = now.replicas[0]
        if now.leader == preferred:
            others = [node for node in now.isr if node != preferred]
            if not others:
                continue
            preferred = planned.pick(0, others)
            rest = [node for node in now.replicas if node != preferred]
            _move(stage, partition, [preferred, *rest])
        try:
            stage.cluster.ask(lambda admin, key=key: admin.elect_leaders([key]))
        except KafkaError as problem:
            if not problem.retriable:
                raise
            continue
        with contextlib.suppress(NotHit):
            stage.until(
                lambda p=partition, node=preferred: _described(stage, p).leader == node,
                SEEN_WITHIN_S,
                f"node {preferred} leading {APPEND}/{partition}",
            )
            fault.hit(f"{APPEND}/{partition} to node {preferred}, and others")
    if not fault.is_hit:
        raise NotHit("no other replica came to lead")


def _described(stage: Stage, partition: int) -> "Partition":
    for found in stage.cluster.ask(lambda admin: admin.describe_topics([APPEND])):
        if found.partition == partition:
            return found
    raise NotHit(f"{APPEND}/{partition} is not known to the broker that was asked")


CLIENT_ACTIONS: dict[str, Action] = {
    "worker-kill": _worker_kill,
    "worker-pause": _worker_pause,
    "member-joins": _member_joins,
    "client-cut": _client_cut,
    "client-delay": _client_delay,
    "client-hold": _client_hold,
    "topic-churn": _topic_churn,
    "config-change": _config_change,
    "reassignment": _reassignment,
    "elect-leaders": _elect_leaders,
}

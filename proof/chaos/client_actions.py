"""Injects faults of clients, of connections, of groups and of topics."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...client.producer import Producer
from ...deploy.faults.engine import Action, EffectNotSeen
from ...deploy.faults.schedule import Fault
from ...wire.errors import KafkaError, error_for
from ...wire.messages.apis import API_NAMES
from .context import ChaosContext
from .load.settings import APPEND

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...client.cluster_view import PartitionInfo

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


def _worker_kill(context: ChaosContext, fault: Fault) -> None:
    name = fault.pick(0, context.processes.names)
    pid = context.processes.kill(name)
    context.hit(fault, f"{name}, pid {pid}", fault.between(1, 0.0, 1.0))
    context.processes.start(name)


def _worker_pause(context: ChaosContext, fault: Fault) -> None:
    name = fault.pick(0, context.processes.names)
    pid = context.processes.pause(name)
    try:
        session_s = context.settings.session_timeout_ms / 1000
        context.hit(fault, f"{name}, pid {pid}", fault.between(1, 0.3, 2.0) * session_s)
    finally:
        context.processes.resume(name)


def _member_joins(context: ChaosContext, fault: Fault) -> None:
    name, group = "extra", context.settings.group

    def members() -> set[str]:
        found = context.cluster.ask(lambda admin: admin.groups.describe(group))
        return {member.member_id for member in found.members}

    before = members()
    context.processes.add(name, context.extra_order)
    try:
        context.until(lambda: bool(members() - before), 2 * SEEN_WITHIN_S, "another member")
        context.hit(fault, f"group {group}", fault.between(1, 0.5, 3.0))
    finally:
        context.processes.remove(name)


def _client_cut(context: ChaosContext, fault: Fault) -> None:
    entry = fault.pick(0, context.cluster.file.nodes)
    cut = partial(context.proxies.cut, entry.port)
    words, lasts_s = f"clients to node {entry.node_id}", fault.between(1, 0.3, 4.0)
    _break_ways(context, fault, cut, "dropped", words, lasts_s)


def _client_delay(context: ChaosContext, fault: Fault) -> None:
    entry = fault.pick(0, context.cluster.file.nodes)
    delay_ms = int(fault.between(2, 20, 400))
    delay = partial(context.proxies.delay, entry.port, delay_ms)
    words = f"clients to node {entry.node_id} by {delay_ms} ms"
    _break_ways(context, fault, delay, "delayed", words, fault.between(1, 0.5, 2.5))


def _client_hold(context: ChaosContext, fault: Fault) -> None:
    """Hold a request, half of the time for longer than its client waits for the answer."""
    api_key = fault.pick(0, HELD_REQUESTS)
    hold = partial(context.proxies.hold, api_key)
    lasts_s = context.settings.request_timeout_ms / 1000 * fault.between(1, 0.4, 1.6)
    _break_ways(context, fault, hold, "held", f"one {API_NAMES[api_key]} request", lasts_s)


def _break_ways(
    context: ChaosContext,
    fault: Fault,
    begin: Callable[[], None],
    effect: str,
    words: str,
    lasts_s: float,
) -> None:
    """Start a fault of the proxies by `begin()`, and end it `lasts_s` after its first effect.

    The fault counts when the proxies' count `effect` shows an affected request.
    """
    counts = context.proxies.counts
    before = counts[effect]  # a request may be held immediately, and only one is ever held
    try:
        begin()
        context.until(lambda: counts[effect] > before, SEEN_WITHIN_S, f"a request that is {effect}")
        context.hit(fault, words, lasts_s)
    finally:
        context.proxies.heal()


def _topic_churn(context: ChaosContext, fault: Fault) -> None:
    topic = f"{CHURN_PREFIX}{int(fault.numbers[0] * 1e6)}"
    partitions = int(fault.between(1, 1, 5))

    replicas = context.settings.replication_factor

    async def write(admin: "Admin") -> None:
        async with Producer(admin.view, delivery_timeout_ms=5_000, max_block_ms=5_000) as producer:
            await (await producer.send(topic, b"x", partition=0))

    def is_gone() -> bool:
        found = context.cluster.ask(lambda admin: admin.describe_topics())
        return all(p.topic != topic for p in found)

    context.cluster.ask(
        lambda admin: admin.create_topic(topic, partitions=partitions, replication_factor=replicas)
    )
    try:
        context.until(lambda: not is_gone(), SEEN_WITHIN_S, f"topic {topic}")
        context.hit(fault, topic)
        context.cluster.ask(write)
    finally:
        context.cluster.ask(lambda admin: admin.delete_topics([topic]))
    context.until(is_gone, SEEN_WITHIN_S, f"the end of topic {topic}")


def _config_change(context: ChaosContext, fault: Fault) -> None:
    name, value = fault.pick(0, CONFIGS)

    def is_in_force() -> bool:
        found = context.cluster.ask(lambda admin: admin.describe_configs(APPEND))
        return any(c.name == name and c.value == value for c in found)

    context.cluster.ask(lambda admin: admin.alter_configs(APPEND, {name: value}))
    try:
        context.until(is_in_force, SEEN_WITHIN_S, f"{name}={value}")
        context.hit(fault, f"{APPEND}: {name}={value}", fault.between(1, 0.2, 2.0))
    finally:
        context.cluster.ask(lambda admin: admin.alter_configs(APPEND, {name: None}))


def _reassignment(context: ChaosContext, fault: Fault) -> None:
    """Reassign a partition to random nodes, first without the last of them, then to all of them.

    The nodes are as many as the replication factor. Of two nodes, none is left out at first.
    """
    partition = fault.pick(0, range(context.settings.append_partitions))
    order = fault.turned(1, context.cluster.node_ids)[: context.settings.replication_factor]
    _move(context, partition, order[: max(2, len(order) - 1)])
    try:
        context.hit(fault, f"{APPEND}/{partition} to {order}", fault.between(2, 0.1, 1.0))
    finally:
        _move(context, partition, order)


def _move(context: ChaosContext, partition: int, replicas: list[int]) -> None:
    wanted = [{"partition_index": partition, "replicas": replicas}]
    request = {
        "timeout": 10_000,
        "allow_replication_factor_change": True,
        "topics": [{"name": APPEND, "partitions": wanted}],
    }

    async def move(admin: "Admin") -> None:
        connection = await admin.view.any_broker()
        answer = await connection.call(ALTER_PARTITION_REASSIGNMENTS, request)
        codes = [int(p.error_code) for t in answer.responses for p in t.partitions]
        for code in (int(answer.error_code), *codes):
            if code:
                raise error_for(code)

    def is_taken() -> bool:
        try:
            context.cluster.ask(move)
        except KafkaError as problem:
            if not problem.retriable:
                raise
            return False
        return True

    def has_moved() -> bool:
        return list(_described(context, partition).replicas) == replicas

    taken = f"a move of {APPEND}/{partition} that is taken"
    context.until(is_taken, MOVED_WITHIN_S, taken, mends=True)  # it may move back
    context.until(has_moved, MOVED_WITHIN_S, f"{APPEND}/{partition} on {replicas}")


def _elect_leaders(context: ChaosContext, fault: Fault) -> None:
    """Elect the preferred leader of each partition. If it leads already, prefer another one first.

    Partitions are handled one by one, since some may be unavailable or fall behind at this moment.
    Raises EffectNotSeen if no leader has changed.
    """
    for partition in range(context.settings.append_partitions):
        key = (APPEND, partition)
        now = _described(context, partition)
        preferred = now.replicas[0]
        if now.leader == preferred:
            others = [node for node in now.isr if node != preferred]
            if not others:
                continue
            preferred = fault.pick(0, others)
            rest = [node for node in now.replicas if node != preferred]
            _move(context, partition, [preferred, *rest])
        try:
            context.cluster.ask(lambda admin, key=key: admin.elect_leaders([key]))
        except KafkaError as problem:
            if not problem.retriable:
                raise
            continue
        with contextlib.suppress(EffectNotSeen):
            context.until(
                lambda p=partition, node=preferred: _described(context, p).leader == node,
                SEEN_WITHIN_S,
                f"node {preferred} leading {APPEND}/{partition}",
            )
            context.hit(fault, f"{APPEND}/{partition} to node {preferred}, and others")
    if not fault.target:
        raise EffectNotSeen("no other replica came to lead")


def _described(context: ChaosContext, partition: int) -> "PartitionInfo":
    for found in context.cluster.ask(lambda admin: admin.describe_topics([APPEND])):
        if found.partition == partition:
            return found
    raise EffectNotSeen(f"{APPEND}/{partition} is not known to the broker that was asked")


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

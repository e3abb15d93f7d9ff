"""The sink's checks of a cluster, before anything is written.

Prepared transactions need InitProducerId 6 (in Apache Kafka 4.3 by unstable.api.versions.enable)
and transaction.two.phase.commit.enable on every broker, since any broker may coordinate a task's
transaction. The topic oncelog.spark.decisions, where the driver writes which transactions of a
batch to commit, is created if it is missing. An existing topic is refused if its configuration
could lose a decision.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...client import Admin
from ...client.admin import BROKER_RESOURCE
from ...client.cluster_view import PartitionInfo
from ...client.loop_thread import LoopThread
from ...client.retries import now_ms
from ...client.transactions.requests import TransactionRequests
from ...wire.errors import (
    ClusterAuthorizationFailed,
    ErrorCode,
    InvalidReplicationFactor,
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from .decision import TOPIC
from .login import ClusterLogin
from .modes import (
    CONTROL_TIMEOUT_MS,
    DRIVER_TIMEOUT_MS,
    TIMEOUT_MAX,
    BrokerAnswers,
    Mode,
    choose_mode,
    mode_in_words,
)
from .names import timeout_id
from .stop_words import SinkStopped

log = logging.getLogger("oncelog.sink")

INIT_PRODUCER_ID, PREPARES_FROM = 22, 6
UNSTABLE, TWO_PHASE = "unstable.api.versions.enable", "transaction.two.phase.commit.enable"
GIVEN_MS = "transaction_timeout_ms"
TIMEOUT_MAX_DEFAULT_MS, TIMEOUT_STEP_MS = 900_000, 1_000
ASK_TIMEOUT_MS = 10_000
REPLICAS = 3
LOOK_S, LOOK_AGAIN_S = 3.0, 0.2
SMALL = {
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}  # each start reads all of it, and the last segment is never compacted
APPEARS_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenMode:
    """The mode that a sink uses, and its transaction timeouts.

    control_timeout_ms: for the transactions in which the driver writes its decisions.
    task_timeout_ms: for the transactions of tasks, or None for prepared transactions, which have no
    timeout. in_words: text for the log.
    """

    mode: Mode
    control_timeout_ms: int
    task_timeout_ms: int | None = None
    in_words: str


def refuse_missing_topic(login: ClusterLogin, topic: str) -> None:
    """Raise ValueError, within seconds, when the cluster has no topic of this name.

    A new topic may not be known to each broker yet, so the check is repeated. If the cluster does
    not answer, the check returns, because the query waits for the cluster.
    """

    async def look() -> bool:
        view = login.open_view("oncelog-sink")
        try:
            async with asyncio.timeout(LOOK_S):
                while await _is_missing(Admin(view), topic):
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            return topic in view.snapshot.topic_errors
        except KafkaError:  # such as a lack of permission
            return False
        finally:
            await view.close()
        return False

    thread = LoopThread("oncelog-sink-look")
    try:
        is_missing = thread.run(look())
    finally:
        thread.close()
    if is_missing:
        raise ValueError(
            f"there is no topic {topic} on {login.bootstrap}, and the sink makes none: create it "
            "(oncelog topic create, kafka-topics), then start again"
        )


async def _is_missing(admin: Admin, topic: str) -> bool:
    try:
        await admin.describe_topics([topic])
    except UnknownTopicOrPartition:
        return True
    return False


async def settle_mode(
    admin: Admin, sink_id: str, wanted: Mode | None, given_ms: int | None
) -> ChosenMode:
    """Choose the mode by the brokers' settings. `given_ms` is the user's transaction_timeout_ms.

    Raises SinkStopped when the brokers do not support the mode `wanted`, which is None for "auto".
    """
    control_ms, task_ms = given_ms or CONTROL_TIMEOUT_MS, None
    least_ms = given_ms or 0 if wanted is Mode.TRANSACTIONAL else control_ms
    answers = await check_brokers(admin, least_ms, GIVEN_MS, needs_prepared=wanted is Mode.PREPARED)
    mode = choose_mode(wanted, answers)
    if mode is Mode.DRIVER:
        control_ms = given_ms or DRIVER_TIMEOUT_MS
        answers.require_timeout(control_ms, GIVEN_MS)
    if mode is Mode.TRANSACTIONAL:
        task_ms = given_ms or await longest_timeout_ms(admin, sink_id, answers)
        control_ms = min(CONTROL_TIMEOUT_MS, task_ms)
    return ChosenMode(
        mode=mode,
        control_timeout_ms=control_ms,
        task_timeout_ms=task_ms,
        in_words=mode_in_words(sink_id, wanted, mode, answers, task_ms or control_ms),
    )


async def check_brokers(
    admin: Admin, timeout_ms: int, timeout_name: str, *, needs_prepared: bool
) -> BrokerAnswers:
    """Return the brokers' settings, or raise SinkStopped if one would refuse the sink's requests.

    A listed broker that does not answer is skipped. Such a broker is failing, and the check
    includes the broker that takes over its coordinators. Configurations that may not be described
    (DescribeConfigs of the cluster) are skipped unless mode "prepared" needs them, since a broker
    itself refuses a timeout that is too long.
    """
    lacking: dict[str, list[int]] = {}
    timeout_max_ms: dict[int, int] = {}
    unseen: list[int] = []
    await admin.view.refresh([])
    for node_id in sorted(admin.view.snapshot.brokers):
        try:
            served = (await admin.view.broker(node_id)).versions.get(INIT_PRODUCER_ID, (0, 0))[1]
            configs = await _broker_configs(admin, node_id, must_see=needs_prepared)
        except KafkaError as problem:
            if not problem.retriable:
                raise
            continue
        if served < PREPARES_FROM:
            lacking.setdefault(f"{UNSTABLE}=true", []).append(node_id)
        if configs is None:
            unseen.append(node_id)
            continue
        if configs.get(TWO_PHASE, "true") != "true":
            lacking.setdefault(f"{TWO_PHASE}=true", []).append(node_id)
        if configs.get(TIMEOUT_MAX):
            timeout_max_ms[node_id] = int(configs[TIMEOUT_MAX])
    answers = BrokerAnswers(lacking=lacking, timeout_max_ms=timeout_max_ms, unseen=tuple(unseen))
    if needs_prepared:
        answers.require_prepared()
    answers.require_timeout(timeout_ms, timeout_name)
    return answers


async def longest_timeout_ms(admin: Admin, sink_id: str, answers: BrokerAnswers) -> int:
    """Return the longest transaction timeout that every broker accepts.

    If a broker's configuration may not be read, the timeout is found by InitProducerId requests
    with a transactional id that serves only this search. The first request has Kafka's default,
    which is returned if it is accepted. Else further requests bisect, to within TIMEOUT_STEP_MS.
    """
    if not answers.unseen and answers.timeout_max_ms:
        return min(answers.timeout_max_ms.values())
    requests = TransactionRequests(
        admin.view, timeout_id(sink_id), timeout_ms=ASK_TIMEOUT_MS, backoff=(20, 500)
    )
    taken, refused, asked = 0, 2 * TIMEOUT_MAX_DEFAULT_MS, TIMEOUT_MAX_DEFAULT_MS
    while not taken or (taken < TIMEOUT_MAX_DEFAULT_MS and refused - taken > TIMEOUT_STEP_MS):
        try:
            await requests.init_producer_id(now_ms() + ASK_TIMEOUT_MS, transaction_timeout_ms=asked)
            taken = asked
        except KafkaError as problem:
            if problem.number != ErrorCode.INVALID_TRANSACTION_TIMEOUT or asked < TIMEOUT_STEP_MS:
                raise
            refused = asked
        asked = (taken + refused) // 2
    return min([taken, *answers.timeout_max_ms.values()])


async def ready_topic(admin: Admin) -> None:
    """Create the topic oncelog.spark.decisions, or check that it cannot lose records.

    Raises SinkStopped, and TimeoutError while the topic has no leader.
    """
    try:
        await admin.describe_topics([TOPIC])
    except UnknownTopicOrPartition:
        await _make(admin)
    try:
        async with asyncio.timeout(APPEARS_S):
            partitions = await _with_leaders(admin)
    except TimeoutError:
        raise TimeoutError(
            f"The topic {TOPIC}, which holds the sink's decisions, is not there or has no leader "
            f"for {APPEARS_S:.0f} s. Are the brokers that have it alive (oncelog topic describe, "
            "kafka-topics)?"
        ) from None
    brokers = sum(not b.is_fenced for b in (await admin.describe_cluster()).brokers)
    replicas = len(partitions[0].replicas)
    problems = flaws(await _configs(admin, TOPIC), len(partitions), replicas, brokers)
    if problems:
        raise SinkStopped(
            f"The topic {TOPIC} could lose a decision, and rows with it: {'; '.join(problems)}. "
            "Alter it (oncelog topic alter, kafka-configs), then start again."
        )


async def _with_leaders(admin: Admin) -> list[PartitionInfo]:
    while True:
        try:
            partitions = await admin.describe_topics([TOPIC])
        except UnknownTopicOrPartition:
            partitions = []
        if partitions and all(p.leader >= 0 for p in partitions):
            return partitions
        await asyncio.sleep(0.05)


def flaws(
    configs: Mapping[str, str | None], partitions: int, replicas: int, brokers: int
) -> list[str]:
    """List the problems of the topic oncelog.spark.decisions, with its configs and replicas.

    `brokers` is the number of live brokers.
    """
    found: list[str] = []
    if partitions != 1:
        found.append(f"it has {partitions} partitions instead of one")
    policy = configs.get("cleanup.policy")
    if policy != "compact":
        found.append(f"cleanup.policy is {policy}, and has to be compact alone")
    if replicas < min(REPLICAS, brokers):
        found.append(
            f"it has {replicas} replica{'s' * (replicas > 1)}, and the cluster {brokers} brokers: "
            f"it has to have {min(REPLICAS, brokers)} (kafka-reassign-partitions)"
        )
    least = int(configs.get("min.insync.replicas") or 1)
    if replicas > 1 and least < 2:
        found.append(f"min.insync.replicas is {least} of {replicas} replicas, and has to be 2")
    if configs.get("unclean.leader.election.enable", "false") != "false":
        found.append("unclean.leader.election.enable is true, and has to be false")
    return found


async def _make(admin: Admin) -> None:
    brokers = (await admin.describe_cluster()).brokers
    counts = [min(REPLICAS, len(brokers)), min(REPLICAS, sum(not b.is_fenced for b in brokers))]
    for replicas in dict.fromkeys(counts):  # a broker that is away may have a replica
        configs = {
            "cleanup.policy": "compact",
            "min.insync.replicas": "2" if replicas > 1 else "1",
            "unclean.leader.election.enable": "false",
            **SMALL,
        }
        try:
            await admin.create_topic(
                TOPIC, partitions=1, replication_factor=max(1, replicas), configs=configs
            )
        except InvalidReplicationFactor:
            continue
        except TopicAlreadyExists:  # another sink was quicker, or our first try succeeded
            pass
        return


async def _broker_configs(admin: Admin, node_id: int, *, must_see: bool) -> dict[str, Any] | None:
    try:
        return await _configs(admin, str(node_id), BROKER_RESOURCE)
    except ClusterAuthorizationFailed:
        if must_see:
            raise
        log.info("the configuration of broker %s may not be read, so it is not checked", node_id)
        return None


async def _configs(admin: Admin, name: str, kind: int | None = None) -> dict[str, Any]:
    described = await (
        admin.describe_configs(name) if kind is None else admin.describe_configs(name, kind)
    )
    return {each.name: each.value for each in described}

"""The automatic creation of requested topics (`auto.create.topics.enable`) and __consumer_offsets.

Many clients may request the same new topic at the same time, on several brokers. On one broker they
share one request to the controller. If several brokers send such a request, the controller creates
the topic once. A topic that cannot be created, for example for lack of brokers, stays unknown to
the clients, which retry, as in Kafka. The reason is in the log.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from ....coordinator.metadata.commands import CreateTopics, NewTopic
from ....coordinator.metadata.topic_names import why_invalid
from ....runtime.rate_limited_log import LimitedLog
from ....runtime.steps import made
from ....wire.errors import ErrorCode, KafkaError
from ...config.broker_config import BrokerConfig
from ...groups.coordinator import OFFSETS_TOPIC
from ...services import BrokerServices
from .topic_ids import new_topic_id

# Kafka creates these topics itself. Here transactions use no topic, and share groups are not
# supported.
NEVER_AUTOMATIC = frozenset({"__transaction_state", "__share_group_state", "__cluster_metadata"})
NAMED = 100  # the limit of topic names of one request in the log
CREATION_TIMEOUT_MS = 1000  # how long a request waits for the topic that it creates


class AutoCreation:
    def __init__(self, log: logging.Logger) -> None:
        self._log = LimitedLog(log)
        self._under_way: dict[str, asyncio.Task[None]] = {}

    @staticmethod
    def may_create(name: str) -> bool:
        """Return whether a topic of this name may be created automatically."""
        return why_invalid(name) is None and name not in NEVER_AUTOMATIC

    async def create(self, broker: BrokerServices, names: Sequence[str]) -> dict[str, int]:
        """Create topics, and wait a limited time for the new topics.

        If another client's request is already creating a topic, this call waits for that request.
        Returns for each name the error to report if the topic is still missing.
        """
        new = [name for name in names if name not in self._under_way]
        if new:
            task = asyncio.get_running_loop().create_task(self._create(broker, new))
            self._under_way |= dict.fromkeys(new, task)
            task.add_done_callback(lambda _: self._settled(new))
        waiting = set(filter(None, map(self._under_way.get, names)))
        done, _ = await asyncio.wait(waiting, timeout=CREATION_TIMEOUT_MS / 1000)
        settled: set[asyncio.Task[None] | None] = {None, *done}

        def error_of(name: str) -> tuple[str, int]:
            if self._under_way.get(name) in settled:
                return name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return name, ErrorCode.LEADER_NOT_AVAILABLE

        return dict(await broker.work.finish("Metadata", made(error_of, names)))

    async def _create(self, broker: BrokerServices, names: Sequence[str]) -> None:
        making = made(partial(new_topic, broker.config), names)
        command = CreateTopics(tuple(await broker.work.finish("CreateTopics", making)))
        try:
            result = await broker.controller.submit(
                command, timeout_ms=broker.config.request_timeout_ms
            )
        except KafkaError as error:
            self._log_limited(names[:NAMED], error)
            return
        for item in result.items[:NAMED]:
            if item.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._log_limited(item.name, item.message)

    def _log_limited(self, topics: object, reason: object) -> None:
        now_s = asyncio.get_running_loop().time()
        message = "the automatic creation of %s failed: %s"
        self._log.log(logging.INFO, "auto-creation", now_s, message, topics, reason)

    def _settled(self, names: Sequence[str]) -> None:
        for name in names:
            self._under_way.pop(name, None)


def new_topic(config: BrokerConfig, name: str) -> NewTopic:
    """Return a new topic with the defaults for its name."""
    if name == OFFSETS_TOPIC:
        return NewTopic(
            name=name,
            topic_id=new_topic_id(),
            partition_count=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    return NewTopic(name=name, topic_id=new_topic_id())

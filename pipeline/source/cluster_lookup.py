"""Requests for the partitions, topic ids, log bounds and offsets by time that the source needs.

The lookup runs in the process where Spark plans, for as long as the query lives. It waits only
REACH_S for its first answer, so that a wrong address is reported soon. Afterwards each request is
retried until it is answered or LOOKUP_MS_MAX is over, so a fail-over is only a pause. `known`
requests metadata, then the bounds of the logs. If the bounds are not complete after ROUND_MS_MAX,
it begins anew with new metadata, because requests about a topic deleted in between are never
answered, and because new topics may match a pattern.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ...client.admin import EARLIEST, LATEST, Admin
from ...client.blocking import BlockingAdmin
from ...client.cluster_view import ClusterSnapshot, topic_error
from ...client.fetch.offset_queries import list_offsets
from ...client.settings import ADMIN_NAMES
from ...wire.errors import KafkaError
from ...wire.identifiers import TopicPartition
from .offsets import Known, LogBounds
from .options import OptionError, Topics

LOOKUP_MS_MAX, ROUND_MS_MAX = 60_000, 5_000
REACH_AGAIN_S = 0.2
REACH_S = 3.0  # limit before the first answer, so that a wrong address is reported soon
T = TypeVar("T")


class ClusterLookup:
    """Requests to one cluster, connected at the first request, and closed with `close`."""

    def __init__(self, client: Mapping[str, Any], topics: Topics, *, is_committed: bool) -> None:
        self._config = {name: value for name, value in client.items() if name in ADMIN_NAMES}
        self._topics, self._is_committed = topics, is_committed
        self._admin: BlockingAdmin | None = None
        self._has_answered = False

    def __getstate__(self) -> dict[str, Any]:  # Spark sends readers to its tasks
        return {**self.__dict__, "_admin": None}

    def close(self) -> None:
        """Close the connections. The next request opens them again."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def known(self, *, must_exist: bool = True) -> Known:
        """Return the wanted partitions, with the current bounds of their logs.

        must_exist: raise OptionError if a named topic or partition is missing. Raises the errors of
        `wire.errors` when no broker answers.
        """
        return self._run(lambda admin: self._known(admin, must_exist))

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after each partition's time.

        Partitions that have no record at or after their time are left out.
        """
        found = self._run(
            lambda admin: admin.list_offsets(times_ms, read_committed=self._is_committed)
        )
        return {key: offset for key, offset in found.items() if offset >= 0}

    def _run(self, ask: Callable[[Admin], Awaitable[T]]) -> T:
        if self._admin is None:
            self._admin = BlockingAdmin(self._config, timeout_ms=LOOKUP_MS_MAX)
        if not self._has_answered:
            self._admin.run(self._reach)
            self._has_answered = True
        return self._admin.run(ask)

    async def _reach(self, admin: Admin) -> None:
        """Raise OptionError if no broker answers within a few seconds, and print the reason.

        Spark would print only stack traces, much later.
        """
        why: Exception = TimeoutError(f"no broker answers for {REACH_S:.0f} s")
        try:
            async with asyncio.timeout(REACH_S):
                while True:
                    try:
                        await admin.view.refresh([])
                        return
                    except KafkaError as problem:
                        if not problem.retriable:
                            raise
                        why = problem
                    await asyncio.sleep(REACH_AGAIN_S)
        except TimeoutError:
            pass
        sentence = (
            f"kafka.bootstrap.servers={self._config.get('bootstrap.servers')}: {why}. Is the "
            "address right, and does the cluster run?"
        )
        print(f"oncelog: {sentence}", file=sys.stderr, flush=True)
        raise OptionError(sentence)

    async def _known(self, admin: Admin, must_exist: bool) -> Known:
        return await admin.view.retrying(
            lambda: self._look(admin, must_exist), timeout_ms=LOOKUP_MS_MAX
        )

    async def _look(self, admin: Admin, must_exist: bool) -> Known:
        named = self._topics.named()
        snapshot = await admin.view.refresh(sorted(named) if named else None)
        internal = snapshot.internal_topics
        wanted = [
            (topic, partition)
            for topic, partition in snapshot.partitions
            if self._topics.wants(topic, partition, is_internal=topic in internal)
        ]
        self._check_named(wanted, snapshot, must_exist)
        begins, ends = [
            await list_offsets(
                admin.view,
                dict.fromkeys(wanted, place),
                read_committed=place == LATEST and self._is_committed,
                timeout_ms=ROUND_MS_MAX,
            )
            for place in (EARLIEST, LATEST)
        ]
        ids = {topic: snapshot.topic_ids.get(topic, b"").hex() for topic, _ in wanted}
        return Known(
            {key: LogBounds(begins[key], ends[key]) for key in sorted(wanted)},
            {topic: topic_id if topic_id.strip("0") else "" for topic, topic_id in ids.items()},
        )

    def _check_named(
        self, wanted: list[TopicPartition], snapshot: ClusterSnapshot, must_exist: bool
    ) -> None:
        for topic in sorted(self._topics.named() - {topic for topic, _ in wanted}):
            code = snapshot.topic_errors.get(topic, 0)
            if code and not topic_error(topic, code).retriable:  # as a lack of permission
                raise topic_error(topic, code)
            if must_exist:
                said = str(topic_error(topic, code)) if code else f"topic {topic} has no partitions"
                raise OptionError(f"{said.rstrip('.')}; create it before it is read")
        if not must_exist:
            return
        if missing := sorted(set(self._topics.partitions) - set(wanted)):
            topic, partition = missing[0]
            raise OptionError(f"there is no partition {topic}/{partition} that assign speaks of")

"""Fetches ahead of the application, with one request at a time to each leader.

This file follows some rules. A partition is fetched while fewer than two of its answers wait to be
read. No partition is fetched while two times fetch.max.bytes wait to be read. The settings
therefore bound memory (plus one answer on its way from each leader), and the broker works while the
application does. Fetches have connections of their own, because a long poll would delay all other
requests of its connection. An error of one partition is kept in `problems` for the next poll. After
a leader has moved, the reader first asks the new leader whether its log continues from the known
records, and then fetches.

Fetches name topics by name, or by id if the caller gives ids and the broker supports ids (KIP-516).
With ids, a topic that was created again is another topic. A long-lived reader has a fetch session
with each leader (`broker_session`), and names only partitions that have changed.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from ...wire.errors import ErrorCode, KafkaError, error_for
from ...wire.identifiers import TopicPartition
from ...wire.messages import fetch
from ..cluster_view import ClusterView
from ..connection import BrokerConnection
from ..long_work import LongWork
from ..security.permissions import error_about
from ..settings import Settings
from .broker_session import SESSIONS_FROM, BrokerSession, by_topic
from .epoch_queries import EpochEnd, epoch_ends
from .state import FetchState

FETCH, BY_NAME_NEWEST, BY_ID_NEWEST, CHANNEL = 1, 12, 16, "fetch"
ANSWERS_AHEAD = 2
RETRY_PAUSE_MS = 50
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Fetcher:
    """Fetches partitions from their leaders, ahead of the application."""

    def __init__(
        self,
        view: ClusterView,
        settings: Settings,
        topic_ids: Mapping[str, bytes] | None = None,
        *,
        has_sessions: bool = False,
    ) -> None:
        """Create a fetcher, with a fetch session for each leader if `has_sessions`.

        `topic_ids` are the ids of the topics that are fetched by id.
        """
        self._view, self._settings = view, settings
        self._has_sessions = has_sessions
        self._sessions: dict[int, BrokerSession] = {}
        self._topic_ids = topic_ids or {}
        # whether a fetch used names, so that its answer may be of another topic
        self.has_gone_by_name = False
        self._is_committed = settings.isolation_level == "read_committed"
        self.arrived = asyncio.Event()
        self.problems: list[KafkaError] = []
        self.out_of_range: list[tuple[FetchState, int]] = []  # with the requested offset
        self.truncated: list[tuple[FetchState, int, EpochEnd]] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._looking = LongWork()

    def start(self, states: Iterable[FetchState]) -> None:
        """Start requests for those of `states` that may be fetched and are not being fetched.

        The caller owns the states, and may change them at any time.
        """
        by_leader: dict[int, list[FetchState]] = {}
        moved: dict[int, list[FetchState]] = {}
        unknown: set[str] = set()
        states = [state for state in states if state.is_read and state.position >= 0]
        if sum(s.buffered_bytes for s in states) >= ANSWERS_AHEAD * self._settings.fetch_max_bytes:
            return
        partitions, brokers = self._view.snapshot.partitions, self._view.snapshot.brokers
        for state in states:
            if state.answers_waiting >= ANSWERS_AHEAD:
                continue
            known = partitions.get((state.topic, state.partition))
            if known is None or known.leader < 0 or known.leader not in brokers:
                unknown.add(state.topic)
            elif known.leader not in self._tasks:
                is_moved = state.needs_check(known.leader_epoch)
                into = moved if is_moved else by_leader
                into.setdefault(known.leader, []).append(state)
        for leader, doubtful in moved.items():
            self._run(leader, self._check(leader, doubtful))
        for leader, wanted in by_leader.items():
            if leader not in moved:
                self._run(leader, self._fetch(leader, wanted))
        if unknown:
            self._looking.begin(lambda: self._look(unknown))

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._tasks and self._looking.is_idle

    async def close(self) -> None:
        """Cancel all requests."""
        await self._looking.stop()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, leader: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[leader] = task

        def over(done: "asyncio.Task[None]") -> None:
            if self._tasks.get(leader) is done:
                del self._tasks[leader]
            if not done.cancelled() and (problem := done.exception()) is not None:
                known = problem if isinstance(problem, KafkaError) else KafkaError(repr(problem))
                self.problems.append(known)
            self.arrived.set()

        task.add_done_callback(over)

    async def _look(self, topics: set[str]) -> None:
        """Wait for the retry backoff, and then request the current leaders of topics."""
        try:
            await asyncio.sleep(RETRY_PAUSE_MS / 1000)
            await self._view.refresh(topics)
        except KafkaError as problem:
            if not problem.retriable:
                self.problems.append(problem)
        finally:
            self.arrived.set()

    async def _check(self, leader: int, states: list[FetchState]) -> None:
        """Ask a new leader whether its log continues from the known records (KIP-320)."""
        partitions = self._view.snapshot.partitions
        places = {(s.topic, s.partition): s for s in states if (s.topic, s.partition) in partitions}
        asked = {key: (s.fetch_epoch, partitions[key].leader_epoch) for key, s in places.items()}
        if not asked:
            return
        before = {key: (s.position, s.fetch_offset) for key, s in places.items()}
        try:
            ends = await epoch_ends(self._view, leader, asked)
        except KafkaError as problem:
            if not problem.retriable:
                raise
            await self._look({topic for topic, _ in asked})
            return
        stale: set[str] = set()
        for key, state in places.items():
            if (state.position, state.fetch_offset) != before[key]:
                continue  # moved by a poll or seek meanwhile: it is asked again
            end = None if ends is None else ends[key]
            if end is None:
                state.checked_epoch = asked[key][1]
            elif end.error_code:
                stale.add(key[0])
            elif state.is_truncated(end.leader_epoch, end.end_offset, asked[key][1]):
                self.truncated.append((state, state.fetch_offset, end))
        if stale:
            await self._look(stale)

    async def _fetch(self, leader: int, states: list[FetchState]) -> None:
        s = self._settings
        wanted: dict[TopicPartition, fetch.FetchPartition] = {}
        asked: dict[TopicPartition, tuple[FetchState, int, int]] = {}
        for state in states:
            name, number = state.topic, state.partition
            known = self._view.snapshot.partitions.get((name, number))
            epoch = known.leader_epoch if known is not None else -1
            wanted[(name, number)] = fetch.FetchPartition(
                number, state.fetch_offset, s.max_partition_fetch_bytes, epoch
            )
            asked[(name, number)] = (state, state.fetch_offset, epoch)
        request = fetch.FetchRequest(
            s.fetch_max_wait_ms,
            s.fetch_min_bytes,
            [],
            max_bytes=s.fetch_max_bytes,
            isolation_level=int(self._is_committed),
        )
        try:
            connection = await self._view.broker(leader, CHANNEL)
            version = self._version_for(connection, {name for name, _ in wanted})
            topic_ids = self._topic_ids if version > BY_NAME_NEWEST else None
            session = self._session_with(leader, version)
            if session is None:
                request.topics = by_topic(wanted, topic_ids)
            else:
                session.prepare(request, wanted, topic_ids)
            body = fetch.encode_request(request, version)
            limit_ms = s.request_timeout_ms + s.fetch_max_wait_ms
            answer = await connection.send(FETCH, version, body, timeout_ms=limit_ms)
            response = fetch.decode_response(answer, version)
            if session is not None:
                session.answered(response)
                if response.error_code in SESSION_ERRORS:
                    return  # the next fetch names all partitions
            if response.error_code:
                raise error_for(response.error_code)
        except KafkaError as problem:
            if not problem.retriable:
                raise
            await self._look({name for name, _ in wanted})
            return
        stale = self._take(response, asked)
        if stale:
            await self._look(stale)

    def _session_with(self, leader: int, version: int) -> BrokerSession | None:
        if not self._has_sessions or version < SESSIONS_FROM:
            return None
        return self._sessions.setdefault(leader, BrokerSession())

    def _version_for(self, connection: BrokerConnection, topics: Iterable[str]) -> int:
        newest = BY_ID_NEWEST if all(name in self._topic_ids for name in topics) else BY_NAME_NEWEST
        version = connection.version_for(FETCH, newest=newest)
        self.has_gone_by_name |= version <= BY_NAME_NEWEST
        return version

    def _take(
        self,
        response: fetch.FetchResponse,
        asked: dict[TopicPartition, tuple[FetchState, int, int]],
    ) -> set[str]:
        stale: set[str] = set()
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        for topic in response.topics:
            name = topic.name if topic.topic_id is None else names[topic.topic_id]
            assert name is not None
            for p in topic.partitions:
                state, offset, leader_epoch = asked[(name, p.index)]
                if state.fetch_offset != offset:
                    continue  # moved by a seek meanwhile
                if p.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    state.log_start_offset = p.log_start_offset
                    self.out_of_range.append((state, offset))
                elif p.error_code:
                    problem = error_for(p.error_code)
                    if not problem.retriable:
                        words = f"{name}/{p.index}: {problem}"
                        self.problems.append(error_about(p.error_code, name, "Read", words))
                        continue
                    stale.add(name)
                    endpoints = response.node_endpoints
                    self._view.learn_leader(name, p.index, p.current_leader, endpoints)
                else:
                    state.high_watermark = p.high_watermark
                    state.last_stable_offset = p.last_stable_offset
                    state.log_start_offset = p.log_start_offset
                    state.load(p.records, p.aborted_transactions, leader_epoch)
        return stale


async def wait_for(event: asyncio.Event, timeout_ms: float) -> None:
    """Return when the event is set, or after the timeout."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()

"""The fetches of a follower, as one long poll to each broker that leads some of its partitions.

A poll names only the partitions that have news (`FollowerSession`). Each partition in the session
of polls is a slot. `PartitionFollower` decides the effect of an answer on a log, and this file
executes it. The next poll reports the new positions, which acknowledges the records for acks=all.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator
from functools import partial
from typing import Any

from ...replication.follower import Append, PartitionFollower, StartAt, TruncateTo, Wait
from ...replication.follower_session import FollowerSession, FollowerSlot
from ...replication.messages import (
    MalformedPeerMessage,
    PeerMessage,
    ReplicaFetchRequest,
    SlotAnswer,
    decode_fetch_response,
    encode_fetch_request,
)
from ...replication.peer.handlers import Body, PeerError
from ...replication.peer.transport import PeerTransport
from ...runtime.background_task import background_task
from ...runtime.rate_limited_log import LimitedLog
from ...runtime.sliced_work import Steps, run_to_end
from ...runtime.steps import StepCounter
from ...storage.corrupt_file import UNREADABLE
from ...storage.partition_log import PartitionLog, UnexpectedAppendOffset
from ...wire.errors import KafkaError, KafkaStorageError
from ...wire.record_batch import split_batches
from ..config.broker_config import BrokerConfig
from .checkpoint_writer import CheckpointWriter
from .hosted_partition import HostedPartition
from .replica_manager import ReplicaManager
from .replication_throttle import ReplicationThrottle

# For one append, up to 3 ms if all batches are markers.
BATCHES_A_STEP, BYTES_A_STEP = 128, 1024 * 1024
# The limit of an answer that is executed in one turn.
AT_ONCE_STEPS_MAX, AT_ONCE_BYTES_MAX = 4, 2 * 1024 * 1024
SMALL_ANSWER_BYTES = 8 * 1024  # for one partition
SHORT_APPEND_BYTES = 24 * 1024  # 300 markers, which are the smallest batches, take 6 to 9 ms
ANSWERS_A_STEP = 16  # small answers
Answered = tuple[FollowerSlot, SlotAnswer]


def in_steps(records: memoryview | bytes) -> Iterator[memoryview]:
    """Yield the batches of an answer in several parts, each for one append."""
    return split_batches(records, BATCHES_A_STEP, BYTES_A_STEP)


def may_take_long(answers: Iterable[Answered]) -> bool:
    """Return whether executing the answers may take more than about 2 ms."""
    size_bytes = steps = 0
    for number, answered in enumerate(answers, 1):
        if number % ANSWERS_A_STEP == 0:
            steps += 1
        if _may_cut(answered):
            return True
        records = answered[1].records
        size_bytes += len(records)
        if len(records) > SMALL_ANSWER_BYTES:
            steps += sum(1 for _ in in_steps(records))
    return size_bytes > AT_ONCE_BYTES_MAX or steps > AT_ONCE_STEPS_MAX


def longest_last(answers: Iterable[Answered]) -> list[Answered]:
    """Return the answers with truncations last, which may remove thousands of segments."""
    return sorted(answers, key=_may_cut)


def _may_cut(answered: Answered) -> bool:
    return answered[1].diverging_end_offset >= 0


logger = logging.getLogger(__name__)
ANSWER_GRACE_MS = 3000  # added to the maximum wait of the poll
NO_ROOM_BACKOFF_MS = 1000


class ReplicaFetcher:
    """The polls to one leading broker."""

    def __init__(
        self,
        transport: PeerTransport,
        replicas: ReplicaManager,
        config: BrokerConfig,
        throttle: ReplicationThrottle,
        leader_id: int,
    ) -> None:
        self.leader_id = leader_id
        self.broker_epoch = -1
        self._transport = transport
        self._replicas = replicas
        self._config = config
        self._throttle = throttle
        self._session = FollowerSession()
        self._loop = asyncio.get_running_loop()
        # A full disk would cause a line for each partition every second.
        self._limited_log = LimitedLog(logger)
        self._timer: asyncio.TimerHandle | None = None
        self._is_pumping = False
        self._is_stopped = False
        self._not_before_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[FollowerSlot] = set()  # slots whose answer is being executed in slices

    def follow(self, partition: HostedPartition) -> None:
        """Add a partition to the next poll."""
        follower = partition.follower
        assert follower is not None
        if partition.log.flushing.is_owed:  # reported positions must be on the disk
            self._replicas.flusher.flush(partition, partial(self._flushed, partition, follower))
            return
        self._session.add(
            partition.key,
            partition.leader_epoch,
            follower.fetch_position(partition.log),
            partition.log.log_start_offset,
            partition,
        )
        self._pump_soon()

    def _flushed(self, partition: HostedPartition, follower: PartitionFollower) -> None:
        if partition.follower is follower:
            self.follow(partition)

    def stop_following(self, partition: HostedPartition) -> None:
        self._session.remove(partition.key)
        self._pump_soon()

    def resume(self) -> None:
        """End the back-off, because the leader's broker is available again."""
        self._not_before_ms = 0
        self._pump_soon()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    # -- polling

    def _pump_soon(self) -> None:
        """Send one poll at the end of this turn of the event loop, for all changed partitions."""
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        if self._is_stopped:
            return
        now_ms = self._replicas.clock.monotonic_ms()
        if now_ms < self._not_before_ms:
            self._wake_at(self._not_before_ms, now_ms)
            return
        session = self._session
        if session.retries and self._throttle.is_on:
            self._hold(now_ms)
        if session.should_send(now_ms):
            request = session.next_request(
                broker_epoch=self.broker_epoch,
                max_wait_ms=self._config.replica_fetch_wait_max_ms,
                max_bytes=self._config.replica_fetch_response_max_bytes,
            )
            self._transport.ask(
                self.leader_id,
                PeerMessage.REPLICA_FETCH,
                encode_fetch_request(request),
                answered=partial(self._answered, request),
                timeout_ms=request.max_wait_ms + ANSWER_GRACE_MS,
                bulk=True,
            )
        if session.retries:
            self._wake_at(min(session.retries.values()), now_ms)

    def _hold(self, now_ms: int) -> None:
        """Delay the next fetch of throttled partitions while the replication rate is too high."""
        if not (pause_ms := self._throttle.pause_ms()):
            return
        retries, own = self._session.retries, self._config.node_id
        for key, at_ms in retries.items():
            if at_ms <= now_ms and self._throttle.may_hold(key, own):
                retries[key] = now_ms + pause_ms

    def _wake_at(self, at_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(1, at_ms - now_ms) / 1000, self._pump)

    def _answered(self, request: ReplicaFetchRequest, outcome: Body | PeerError) -> None:
        if self._is_stopped:
            return
        self._is_pumping = True  # requests made during the execution are sent at its end
        try:
            if isinstance(outcome, PeerError):
                raise outcome
            response = decode_fetch_response(*outcome)  # type: ignore[arg-type]
            self._take(self._session.on_response(request, response))
        except (PeerError, MalformedPeerMessage) as error:
            logger.debug("a fetch from broker %d failed: %s", self.leader_id, error)
            if self._session.on_failure(request):
                self._back_off()
        finally:
            self._pump()

    def _take(self, answers: list[tuple[FollowerSlot, SlotAnswer]] | None) -> None:
        if answers is None:
            self._back_off()
            return
        if self._throttle.is_on:
            for slot, answer in answers:
                self._throttle.note(slot.key, len(answer.records))
        if len(answers) == 1:
            slot, answer = answers[0]
            _, error, _, _, _, diverging_end_offset, records = answer
            if not error and diverging_end_offset < 0 and 0 < len(records) <= SHORT_APPEND_BYTES:
                self._take_short(slot, answer)
                return
        if may_take_long(answers):
            work = self._take_in_slices(longest_last(answers))
            self._begin("large replica fetch", work)
        else:
            run_to_end(self._taking(answers))

    def _back_off(self) -> None:
        backoff_ms = self._config.replica_fetch_backoff_ms
        self._not_before_ms = self._replicas.clock.monotonic_ms() + backoff_ms

    async def _take_in_slices(self, answers: Iterable[tuple[FollowerSlot, SlotAnswer]]) -> None:
        await self._replicas.work.run("replica fetch", self._taking(answers))

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = background_task(name, work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _taking(self, answers: Iterable[tuple[FollowerSlot, SlotAnswer]]) -> Steps[None]:
        """Execute answers, and add each partition to the next poll when its answer is executed."""
        counter = StepCounter(ANSWERS_A_STEP)
        for slot, answer in answers:
            if counter.ends_step():
                yield
            partition = slot.context
            assert isinstance(partition, HostedPartition)
            if not self._expects(slot, answer, partition):
                continue
            self._busy.add(slot)
            try:
                yield from self._apply(slot, answer, partition)
            except Exception as error:
                self._failed(slot, partition, error)
            finally:
                self._busy.discard(slot)
            self._pump_soon()

    def _expects(self, slot: FollowerSlot, answer: SlotAnswer, partition: HostedPartition) -> bool:
        """Return whether an answer fits the current state of its partition, and may be executed."""
        return (
            partition.follower is not None
            and partition.leader_epoch == slot.leader_epoch
            and slot not in self._busy
            # otherwise the answer is of an earlier session, and the log may have been replaced
            and answer.slot == slot.number
        )

    def _take_short(self, slot: FollowerSlot, answer: SlotAnswer) -> None:
        """Execute one short append like `_taking`, but without generators, which is faster."""
        partition = slot.context
        assert isinstance(partition, HostedPartition)
        if not self._expects(slot, answer, partition):
            return
        log, replicas = partition.log, self._replicas
        high_watermark, log_start_offset = answer.high_watermark, answer.log_start_offset
        try:
            replicas.written.add(partition)
            log.append_as_follower(answer.records, now_ms=replicas.clock.wall_ms())
            if high_watermark > log.high_watermark or log_start_offset > log.log_start_offset:
                _raise_limits(log, high_watermark, log_start_offset)
            self._move(slot, partition)
        except Exception as error:
            self._failed(slot, partition, error)

    def _failed(self, slot: FollowerSlot, partition: HostedPartition, error: Exception) -> None:
        """Handle an exception that occurred while an answer for one partition was executed.

        The other partitions of this leader continue.
        """
        if isinstance(error, KafkaStorageError):
            self._replicas.disk.note(error)
            if partition.log.is_failed:
                self._fail(slot, partition)
            else:  # the disk is full, or the process has too many open files
                self._log_limited("the replica cannot follow for now", partition, error)
                self._move(slot, partition, NO_ROOM_BACKOFF_MS)
        elif isinstance(error, KafkaError | UnexpectedAppendOffset):
            self._log_limited("the leader's answer does not fit the log", partition, error)
            self._move(slot, partition, self._config.replica_fetch_backoff_ms)
        else:
            logger.error("%r: the replica failed to follow its leader", partition, exc_info=error)
            is_damaged = isinstance(error, UNREADABLE)
            partition.log.local.retire(f"following failed, {error!r}", is_damaged=is_damaged)
            self._fail(slot, partition)

    def _fail(self, slot: FollowerSlot, partition: HostedPartition) -> None:
        # The replica may have been removed and added again.
        if self._session.slots.get(slot.key) is slot:
            self._session.remove(slot.key)
        self._replicas.fail(partition)

    def _log_limited(self, kind: str, partition: HostedPartition, error: Exception) -> None:
        now_s = self._loop.time()
        self._limited_log.log(logging.WARNING, kind, now_s, "%r: %s: %s", partition, kind, error)

    def _apply(
        self, slot: FollowerSlot, answer: SlotAnswer, partition: HostedPartition
    ) -> Steps[None]:
        follower, log = partition.follower, partition.log
        assert follower is not None
        match follower.on_response(answer, log):
            case Append(records, high_watermark, log_start_offset):
                for some in in_steps(records):
                    self._replicas.written.add(partition)
                    log.append_as_follower(some, now_ms=self._replicas.clock.wall_ms())
                    if len(some) < len(records):
                        yield
                        if partition.follower is not follower:
                            return
                start_moves = _raise_limits(log, high_watermark, log_start_offset)
                if not records and not start_moves:
                    return
            case TruncateTo(offset, is_below_high_watermark):
                bound, steps = log.truncation.end_min(offset), log.truncation.truncating_to(offset)
                if not self._may_cut(slot, partition, bound):
                    return
                self._log_truncation(partition, offset, is_below_high_watermark)
                if not (yield from self._cut(slot, partition, bound, steps)):
                    return
            case StartAt(offset):
                bound, steps = log.segments.first.base_offset, log.truncation.starting_at(offset)
                if not self._may_cut(slot, partition, bound):
                    return
                logger.warning(
                    "%r: the log is restarted at the leader's log start offset %d",
                    partition,
                    offset,
                )
                if not (yield from self._cut(slot, partition, bound, steps)):
                    return
            case Wait():
                self._move(slot, partition, self._config.replica_fetch_backoff_ms)
                return
        self._move(slot, partition)

    def _move(
        self, slot: FollowerSlot, partition: HostedPartition, backoff_ms: int | None = None
    ) -> None:
        """Report the new fetch position to the leader, after a flush if the topic requires one.

        backoff_ms: fetch again after this time from the end of the log, for example after an answer
        that failed, of which a part may have been appended.
        """
        follower, log = partition.follower, partition.log
        if follower is None or partition.leader_epoch != slot.leader_epoch:
            return
        if log.flushing.is_owed:
            again = partial(self._move, slot, partition, backoff_ms)
            self._replicas.flusher.flush(partition, again)
            return
        self._session.moved(slot, follower.fetch_position(log), log.log_start_offset)
        throttle = self._throttle
        if throttle.is_on and throttle.may_hold(slot.key, self._config.node_id):
            pause_ms = throttle.pause_ms()
            if pause_ms > 0:
                backoff_ms = max(backoff_ms or 0, pause_ms)
        if backoff_ms is not None:
            self._session.retry(slot, self._replicas.clock.monotonic_ms() + backoff_ms)
        if not self._is_pumping:
            self._pump_soon()

    def _may_cut(self, slot: FollowerSlot, partition: HostedPartition, bound: int) -> bool:
        """Return whether the log may be truncated at `bound`, and otherwise lower the checkpoints.

        With checkpoints above the truncation, a restart would treat new records as synced,
        committed, cleaned, or deleted.
        """
        key = (partition.topic, partition.index)
        above = [each for each in self._replicas.checkpoints if not each.is_at_most(key, bound)]
        if above:
            work = self._lower(slot, partition, bound, above)
            self._begin(f"truncation of {partition!r}", work)
        return not above

    def _cut(
        self, slot: FollowerSlot, partition: HostedPartition, bound: int, steps: Steps[None]
    ) -> Steps[bool]:
        """Truncate the log in steps, and return whether the truncation is complete.

        It ends early if the role has changed, or if a checkpoint that was written between two steps
        must be lowered first. The cleaner gets the truncation again before each step, since a
        compaction may have begun.
        """
        follower = partition.follower
        while self._may_cut(slot, partition, bound):
            self._replicas.truncated(partition, bound)
            try:
                next(steps)
            except StopIteration:
                return True
            yield
            if partition.follower is not follower:
                break
        return False

    async def _lower(
        self,
        slot: FollowerSlot,
        partition: HostedPartition,
        bound: int,
        checkpoints: Iterable[CheckpointWriter],
    ) -> None:
        """Write checkpoints with offsets at or below the truncation, and then fetch again."""
        try:
            key = partition.topic, partition.index
            await asyncio.gather(*(each.lower(key, bound) for each in checkpoints))
        except KafkaStorageError as error:
            self._log_limited("cannot be truncated yet", partition, error)
            self._move(slot, partition, NO_ROOM_BACKOFF_MS)
        else:
            self._move(slot, partition, 0)

    def _log_truncation(
        self, partition: HostedPartition, offset: int, is_below_high_watermark: bool
    ) -> None:
        log = partition.log
        logger.log(
            logging.ERROR if is_below_high_watermark else logging.INFO,
            "%r: the log is truncated from offset %d to %d, where the log of leader "
            "%d (epoch %d) differs; the high watermark is %d",
            partition,
            log.log_end_offset,
            offset,
            self.leader_id,
            partition.leader_epoch,
            log.high_watermark,
        )


def _raise_limits(log: PartitionLog, high_watermark: int, log_start_offset: int) -> bool:
    """Apply the leader's high watermark and log start, and return whether the log start rises."""
    if high_watermark > log.high_watermark:
        log.advance_high_watermark(high_watermark)
    if log_start_offset <= log.log_start_offset:
        return False
    log.retention.advance_log_start_offset(min(log_start_offset, log.high_watermark))
    return True

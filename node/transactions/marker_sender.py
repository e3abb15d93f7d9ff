"""The sender of transaction markers to the leaders of their partitions (KIP-98).

The sender has a queue for each broker that gets markers. The markers that a turn of the event loop
adds to a queue are sent together, in messages of at most PARTITIONS_PER_MESSAGE. Several messages
may be in flight, so that a partition that cannot commit does not delay the others. Each marker is
retried until it is written, its topic is deleted, or this node no longer coordinates the
transaction. A moved leader, a dead broker, or too few replicas in sync lead to a retry, perhaps at
another broker. Retries are safe: a marker that is already in the log is answered as written, and a
marker that arrives after the next transaction has begun is refused
(coordinator/transactions/messages.py).
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

from ...coordinator.transactions.messages import TransactionMarker, WriteMarkers, WriteMarkersReply
from ...replication.messages import MalformedPeerMessage, PeerMessage
from ...replication.peer.codec import decode_message, encode_message
from ...replication.peer.transport import PeerError, PeerTransport
from ...runtime.background_task import TaskSet
from ...runtime.sliced_work import SlicedWork
from ...runtime.steps import StepCounter, Steps
from ...wire.errors import ErrorCode, KafkaError
from ...wire.identifiers import TopicPartition

NO_LEADER = -1
# A broker answers within a second (marker_writer.COMMIT_WAIT_MS) unless it is paused. In that case
# another broker leads soon, and read_committed consumers wait for its marker.
REQUEST_TIMEOUT_MS = 2_500
BACKOFF_MS_FIRST, BACKOFF_MS_MAX = 5, 500
# For errors that mean a newer coordinator or epoch, or a broken partition. While this node leads,
# no other node ends the transaction, so the marker is retried, but slowly.
SLOW_RETRY_MS = 1_000
PARTITIONS_PER_MESSAGE = 250  # about 2 ms on each of the two brokers
IN_FLIGHT_MAX = 64  # the limit of messages to one broker
ITEMS_A_STEP = 32
RETRY_QUANTUM_MS = 5  # markers to retry within this time share one timer

WRITTEN = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
RETRIED_SOON = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MarkerTask:
    """The markers of one transaction that is committed or aborted.

    marker: the marker without its partitions. is_wanted: returns False once this node no longer
    coordinates the transaction. on_written: called once for each partition, also for a deleted one.
    """

    marker: TransactionMarker
    is_wanted: Callable[[], bool]
    on_written: Callable[[TopicPartition], None]


@dataclass(slots=True, eq=False)
class _Item:
    task: MarkerTask
    partition: TopicPartition
    leader_epoch: int = -1  # the leader epoch of the partition when the marker is sent
    attempts: int = 0


@dataclass(slots=True, eq=False)
class _Queue:
    items: list[_Item] = field(default_factory=list)
    in_flight: int = 0
    is_due: bool = False


class MarkerSender:
    """The marker sender of one broker, for all its shards.

    leadership_of: returns the leader and the leader epoch of a partition, NO_LEADER without a
    leader, or None if this node does not know the partition. catch_up: waits until this node has
    applied all committed metadata, or raises KafkaError. write_here: writes markers to partitions
    that this node leads.
    """

    def __init__(
        self,
        *,
        node_id: int,
        links: PeerTransport,
        write_here: Callable[[WriteMarkers], Awaitable[WriteMarkersReply]],
        leadership_of: Callable[[str, int], tuple[int, int] | None],
        catch_up: Callable[[], Awaitable[None]],
        work: SlicedWork,
    ) -> None:
        self._node_id = node_id
        self._links = links
        self._write_here = write_here
        self._leadership_of = leadership_of
        self._catch_up = catch_up
        self._loop = asyncio.get_running_loop()
        self._work = work
        self._arrived: deque[_Item] = deque()  # markers to be routed
        self._is_routing = False
        self._due_again: dict[int, list[_Item]] = {}  # by retry time in quanta of the loop's clock
        self._queues: dict[int, _Queue] = {}
        self._unknown: list[_Item] = []  # markers of topics that may be deleted
        self._is_catching_up = False
        self._is_stopped = False
        self._log = logging.getLogger(f"{__name__}.{node_id}")
        self._tasks = TaskSet(self._log, "sending transaction markers failed")

    def send(self, task: MarkerTask, partitions: Iterable[TopicPartition]) -> None:
        """Begin to send the markers of a transaction."""
        self._take(_Item(task, partition) for partition in partitions)

    def stop(self) -> None:
        """Stop sending markers, which the next coordinator sends again."""
        self._is_stopped = True
        self._tasks.cancel()

    # -- inside

    def _take(self, items: Iterable[_Item]) -> None:
        self._arrived.extend(items)
        if not self._is_routing:
            self._is_routing = True
            self._work.begin("transaction markers", self._routing())

    def _routing(self) -> Steps[None]:
        """Route new markers to the queues of their leaders, in steps."""
        try:
            counter = StepCounter(ITEMS_A_STEP)
            while self._arrived:
                self._attempt(self._route, self._arrived.popleft())
                if counter.ends_step():
                    yield
        finally:
            self._is_routing = False

    def _attempt(self, action: Callable[..., None], item: _Item, *arguments: object) -> None:
        """Run an action for one marker, and retry the marker later after an exception."""
        try:
            action(item, *arguments)
        except Exception:
            self._log.exception("the marker for %s-%d failed and will be retried", *item.partition)
            self._retry(item, SLOW_RETRY_MS)

    def _route(self, item: _Item) -> None:
        if self._is_stopped or not item.task.is_wanted():
            return
        leadership = self._leadership_of(*item.partition)
        if leadership is None:
            self._unknown.append(item)
            if not self._is_catching_up:
                self._is_catching_up = True
                self._tasks.spawn(self._end_those_gone())
            return
        leader, item.leader_epoch = leadership
        if leader == NO_LEADER:
            self._retry(item)
            return
        queue = self._queues.setdefault(leader, _Queue())
        queue.items.append(item)
        self._pump_soon(leader, queue)

    def _pump_soon(self, node: int, queue: _Queue) -> None:
        if queue.items and queue.in_flight < IN_FLIGHT_MAX and not queue.is_due:
            queue.is_due = True
            self._loop.call_soon(self._pump, node, queue)

    def _pump(self, node: int, queue: _Queue) -> None:
        queue.is_due = False
        if not self._is_stopped:
            items = queue.items[:PARTITIONS_PER_MESSAGE]
            del queue.items[:PARTITIONS_PER_MESSAGE]
            queue.in_flight += 1
            self._tasks.spawn(self._deliver(node, queue, items))
            self._pump_soon(node, queue)

    async def _end_those_gone(self) -> None:
        """Drop the markers of topics that the cluster has deleted.

        An unknown topic may be newer than this node's metadata, which may be as old as its journal,
        and a marker dropped by mistake would leave its transaction open forever. So this node first
        applies all committed metadata. That costs an entry of the metadata log, which all uncertain
        markers share. Markers that arrive in between wait for the next entry.
        """
        try:
            while self._unknown:
                items, self._unknown = self._unknown, []
                try:
                    await self._catch_up()
                    is_up_to_date = True
                except KafkaError as error:
                    self._log.info(
                        "cannot check whether the topics of %d markers are deleted: %s",
                        len(items),
                        error,
                    )
                    is_up_to_date = False
                except Exception:  # these markers must not be lost
                    self._log.exception(
                        "cannot check whether the topics of %d markers are deleted", len(items)
                    )
                    is_up_to_date = False
                await self._work.finish(
                    "transaction markers", self._ending_those_gone(items, is_up_to_date)
                )
        finally:
            self._is_catching_up = False

    def _ending_those_gone(self, items: list[_Item], is_up_to_date: bool) -> Steps[None]:
        counter = StepCounter(ITEMS_A_STEP)
        for item in items:
            self._attempt(self._end_if_gone, item, is_up_to_date)
            if counter.ends_step():
                yield

    def _end_if_gone(self, item: _Item, is_up_to_date: bool) -> None:
        if not item.task.is_wanted():
            return
        if not is_up_to_date:
            self._retry(item, SLOW_RETRY_MS)
        elif self._leadership_of(*item.partition) is None:
            self._log.info("%s-%d is deleted, so its marker is dropped", *item.partition)
            item.task.on_written(item.partition)
        else:
            self._retry(item)

    async def _deliver(self, node: int, queue: _Queue, items: list[_Item]) -> None:
        by_task: dict[MarkerTask, list[_Item]] = {}
        for item in items:
            if item.task.is_wanted():
                by_task.setdefault(item.task, []).append(item)
        groups = list(by_task.values())
        try:
            errors = await self._write(node, groups) if groups else []
        finally:
            queue.in_flight -= 1
            self._pump_soon(node, queue)
        await self._work.finish("transaction markers", self._answering(groups, errors))

    async def _write(self, node: int, groups: list[list[_Item]]) -> list[tuple[int, ...]]:
        """Send markers to a node, and return an error for each, also after a network failure."""
        failed = [(int(ErrorCode.NETWORK_EXCEPTION),) * len(group) for group in groups]
        try:
            request = WriteMarkers(tuple(_marker(group) for group in groups))
            if node == self._node_id:
                reply = await self._write_here(request)
            else:
                header, _ = await self._links.request(
                    node,
                    PeerMessage.WRITE_TRANSACTION_MARKERS,
                    encode_message(request),
                    timeout_ms=REQUEST_TIMEOUT_MS,
                )
                reply = decode_message(WriteMarkersReply, header)
        except PeerError:
            return failed
        except MalformedPeerMessage as error:
            self._log.warning("sending markers to node %d failed: %s", node, error)
            return failed
        except Exception:
            self._log.exception("markers for node %d could not be written", node)
            return failed
        if [len(errors) for errors in reply.errors] != [len(group) for group in groups]:
            self._log.warning(
                "node %d answered for a different number of markers than it was sent", node
            )
            return failed
        return list(reply.errors)

    def _answering(self, groups: list[list[_Item]], errors: list[tuple[int, ...]]) -> Steps[None]:
        counter = StepCounter(ITEMS_A_STEP)
        for group, group_errors in zip(groups, errors, strict=True):
            for item, error in zip(group, group_errors, strict=True):
                self._attempt(self._answered, item, error)
                if counter.ends_step():
                    yield

    def _answered(self, item: _Item, error: int) -> None:
        if not item.task.is_wanted():
            return
        if error in WRITTEN:
            item.task.on_written(item.partition)
        elif error in RETRIED_SOON:
            self._retry(item)
        else:
            if item.attempts == 0:
                marker = item.task.marker
                self._log.error(
                    "the marker of producer %d, epoch %d is refused by %s-%d with "
                    "error %d, and will be retried",
                    marker.producer_id,
                    marker.producer_epoch,
                    *item.partition,
                    error,
                )
            self._retry(item, SLOW_RETRY_MS)

    def _retry(self, item: _Item, delay_ms: float = 0) -> None:
        if self._is_stopped:
            return
        backoff_ms = min(BACKOFF_MS_FIRST << min(item.attempts, 10), BACKOFF_MS_MAX)
        item.attempts += 1
        due_ms = self._loop.time() * 1_000 + max(delay_ms, backoff_ms)
        due = math.ceil(due_ms / RETRY_QUANTUM_MS)
        if due not in self._due_again:
            self._due_again[due] = []
            self._loop.call_at(due * RETRY_QUANTUM_MS / 1_000, self._try_again, due)
        self._due_again[due].append(item)

    def _try_again(self, due: int) -> None:
        self._take(self._due_again.pop(due))


def _marker(group: list[_Item]) -> TransactionMarker:
    return replace(
        group[0].task.marker,
        partitions=tuple(item.partition for item in group),
        leader_epochs=tuple(item.leader_epoch for item in group),
    )

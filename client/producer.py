"""An asynchronous producer, idempotent by default, transactional with a `transactional.id`.

    async with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")
        print(await delivery)

    async with Producer("127.0.0.1:9092", transactional_id="billing") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"value")
        await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        await producer.commit_transaction()

`send` waits until the record is in a batch (and for room, when buffer.memory is used up) and
returns a `Delivery`. Await the delivery, or let `flush` or the commit wait for all records and
raise failures. Errors are classes of `wire.errors` with `.code`, `.retriable`, `.abortable`,
`.fatal`. React as follows:

    abortable   abort_transaction(), then begin again
    fatal       close this producer; another producer has fenced it, or it lacks a permission
    otherwise   repeat commit_transaction or abort_transaction, if it has raised the error
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Self

from ..wire.batch_builder import RECORD_BYTES_EXTRA, Headers, size_of_headers
from ..wire.errors import InvalidPartitions, KafkaError, RecordListTooLarge, RequestTimedOut
from ..wire.identifiers import TopicPartition
from ..wire.record_rows import LONG_MAX, SizedRows, as_bytes, checked_time
from .cluster_view import ClusterView
from .failures import FORKED, ClientClosed, IllegalProducerState, tell_of_forks
from .group_metadata import GroupMetadata, OffsetAndMetadata, with_metadata
from .produce.accumulator import Accumulator
from .produce.columns import rows_by_partition
from .produce.delivery import Deliveries, Delivery, RecordMetadata
from .produce.sender import Sender
from .produce.topic_lookup import TopicLookup
from .retries import now_ms
from .settings import producer_settings
from .transactions.prepared import PreparedTransaction, complete
from .transactions.producer_state import Call, ProducerIdentity, ProducerState
from .transactions.requests import TransactionRequests
from .transactions.session import TransactionSession
from .view_source import Source, open_view, split_source

__all__ = ["Producer", "RecordMetadata"]

CLOSE_TIMEOUT_MS = 5_000


class Producer:
    """An asynchronous producer. `source` is a view, a bootstrap list or settings.

    The caller closes a given view.
    """

    def __init__(self, source: Source | None = None, /, **keywords: Any) -> None:
        config = split_source(source, keywords)
        self.settings = s = producer_settings(config, keywords)
        self._view, self._owns_view = open_view(source, s)
        self.identity = ProducerIdentity()
        self._batches = Accumulator(
            batch_bytes=s.batch_size,
            linger_ms=s.linger_ms,
            delivery_timeout_ms=s.delivery_timeout_ms,
            in_flight_max=s.max_in_flight_requests_per_connection,
        )
        self._session: TransactionSession | None = None
        if s.transactional_id is not None:
            requests = TransactionRequests(
                self._view,
                s.transactional_id,
                timeout_ms=s.request_timeout_ms,
                backoff=(s.retry_backoff_ms, s.retry_backoff_max_ms),
                version_max=s.oncelog_transaction_version_max,
            )
            self._session = TransactionSession(requests, self.identity, s)
        self._sender = Sender(self._view, s, self.identity, self._batches, self._session)
        self._lookup = TopicLookup(self._view, s)
        self._topics = self._lookup.topics
        # read for every record
        self._record_bytes_max: int = s.max_request_size + RECORD_BYTES_EXTRA
        self._bytes_max: int = s.buffer_memory
        self._ignores_keys: bool = s.partitioner_ignore_keys
        self._is_closed = False
        tell_of_forks(self)

    def forked(self) -> None:
        """Accept no more records in a forked child, if the parent may have sent some."""
        self._is_closed |= self._view.has_connected

    def _why_closed(self) -> ClientClosed:
        return ClientClosed(FORKED if self._view.is_forked else "the producer is closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            with contextlib.suppress(KafkaError):  # the first error counts
                await self.close()

    @property
    def state(self) -> ProducerState:
        """The state of the producer, such as READY or IN_TRANSACTION."""
        return self.identity.state

    @property
    def view(self) -> ClusterView:
        """The brokers and partitions that the producer knows."""
        return self._view

    # --- records

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Put a record into a batch. Its delivery is done when it is acknowledged or has failed.

        Raises if the record cannot be sent, because the topic or partition does not exist, the
        record is too large, the transaction accepts no more records, or nothing was acknowledged
        for max.block.ms.
        """
        record, begun = (topic, value, key, partition, timestamp_ms, headers), self.transaction
        while (delivery := self.try_send(*record)) is None:
            await self.until_sendable(topic)
            self.require_same(begun)
        return delivery

    def try_send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery | None:
        """Send a record as `send` does, but return None where `send` would wait.

        Call this method on the loop's thread only.
        """
        if self._is_closed:
            raise self._why_closed()
        size = RECORD_BYTES_EXTRA
        if value is not None:
            if type(value) is not bytes:
                value = as_bytes(value)
            size += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = as_bytes(key)
            size += len(key)
        if headers:
            size += size_of_headers(headers)
        batches = self._batches
        if size > self._record_bytes_max:
            raise self._too_large(size - RECORD_BYTES_EXTRA)
        if batches.unfinished_bytes + size > self._bytes_max and batches:
            return None
        known = self._topics.get(topic)
        if known is None or known.snapshot is not self._view.snapshot:
            known = self._lookup.look_up(topic)
            if known is None:
                return None
        if partition is None:
            if key is None or self._ignores_keys:
                partition = known.sticky.choose(size, known.count, known.led)
            else:
                partition = known.by_key[key]
        else:
            if type(partition) is not int:  # perhaps equal to no int, and a queue of its own
                partition = index(partition)
            if not 0 <= partition < known.count:
                raise InvalidPartitions(f"topic {topic} has partitions 0..{known.count - 1}")
        if timestamp_ms is None:
            when = time.time_ns() // 1_000_000
        elif type(timestamp_ms) is int and 0 <= timestamp_ms <= LONG_MAX:
            when = timestamp_ms
        else:  # a call would cost every record as much as the choice of its partition
            when = checked_time(timestamp_ms)
        if self._session is not None:
            self._session.want(topic, partition)
        self._sender.start()
        where = (topic, partition)
        delivery = batches.add(where, key, value, headers, when, size)
        if delivery is None:
            batch = batches.begin(where, now_ms())
            try:
                delivery = batches.add(where, key, value, headers, when, size)
            except BaseException:  # of a value that is not bytes: the batch has no record
                batches.discard(where, [batch])
                raise
            assert delivery is not None
            self._sender.wake.set()
        return delivery

    async def send_many(
        self,
        topic: str,
        values: Any,
        *,
        keys: Any = None,
        partition: int | Sequence[int] | None = None,
        timestamp_ms: int | Sequence[int] | None = None,
        headers: Sequence[Headers] | None = None,
        within: object = None,
    ) -> Deliveries:
        """Put many records into batches, at a fraction of the cost of `send`.

        values, keys: lists of bytes and None, or Arrow arrays of binary or text. partition and
        timestamp_ms: one for all, or one for each. within: the `transaction` of the records, by
        default the open one. Returns when all records are in batches. Records of one partition keep
        their order. Raises as `send` does, and TypeError or ValueError for invalid columns, before
        the first record is accepted. But if the transaction fails or nothing is acknowledged for
        max.block.ms, some records may have been sent.
        """
        begun = self.transaction if within is None else within
        if self._is_closed:
            raise self._why_closed()
        while (known := self._lookup.known(topic)) is None:
            await self.until_sendable(topic)
        settings, deliveries = self.settings, Deliveries()
        now = timestamp_ms if timestamp_ms is not None else time.time_ns() // 1_000_000
        by_key = None if settings.partitioner_ignore_keys else known.by_key
        groups = rows_by_partition(
            values, keys, headers, now, partition, by_key, settings.batch_size, known.stick
        )
        for where, rows in groups:
            if where is not None and not 0 <= index(where) < known.count:
                raise InvalidPartitions(f"topic {topic} has partitions 0..{known.count - 1}")
            if (largest := rows.largest_bytes()) > settings.max_request_size:
                raise self._too_large(largest)
        for where, rows in groups:
            await self._append_rows(topic, where, rows, deliveries, begun)
        return deliveries

    def _too_large(self, size_bytes: int) -> KafkaError:
        limit = f"max.request.size={self.settings.max_request_size}"
        return RecordListTooLarge(f"a record of {size_bytes} bytes is above {limit}")

    async def _append_rows(
        self, topic: str, where: int | None, rows: SizedRows, into: Deliveries, begun: object
    ) -> None:
        at, batches = 0, self._batches
        while at < len(rows):
            if batches.unfinished_bytes >= self.settings.buffer_memory:
                await self.until_sendable(topic)
            if self._is_closed:
                raise ClientClosed("the producer was closed")
            partition = where
            if partition is None:
                known = self._lookup.known(topic)
                if known is None:
                    await self.until_sendable(topic)
                    continue
                partition = known.sticky.choose(0, known.count, known.led)
            self.require_same(begun)
            if self._session is not None:
                self._session.want(topic, partition)
            self._sender.start()
            outcome, index, taken = batches.append_rows(topic, partition, rows, at, now_ms())
            into.add(outcome, index, taken)
            if where is None:
                self._topics[topic].sticky.took(rows.bytes_between(at, at + taken))
            at += taken
            self._sender.wake.set()
            await asyncio.sleep(0)  # full batches are sent meanwhile

    async def until_sendable(self, topic: str) -> None:
        """Wait for the topic's metadata or the buffer memory for which `try_send` returned None."""
        if not self._view.snapshot.partitions_of(topic):
            await self._lookup.until_known(topic)
            return
        limit_ms = self.settings.max_block_ms
        # at least one batch, however little waits: a large record found no room
        while self._batches:
            self._sender.start()
            try:
                async with asyncio.timeout(limit_ms / 1000):  # anew after each decided batch
                    await self._sender.until_decided()
            except TimeoutError:
                raise RequestTimedOut(
                    f"buffer.memory is full, and nothing was acknowledged for {limit_ms} ms "
                    "(max.block.ms)"
                ) from None
            if self._batches.unfinished_bytes <= self.settings.buffer_memory // 2:
                return

    @property
    def obstacle(self) -> KafkaError | None:
        """The error that causes the current retries of a batch, or of the search for a topic.

        It is None without retries.
        """
        return self._batches.obstacle or self._lookup.obstacle

    async def flush(self) -> None:
        """Return when the outcome of every sent record is known.

        Raises the first error that the application has not read in a delivery.
        """
        if self._view.is_forked:
            raise self._why_closed()
        await self._sender.flush()
        self._raise_unseen()

    def _raise_unseen(self) -> None:
        problem = self._sender.unseen.take()
        if problem is not None:
            raise problem

    async def close(self) -> None:
        """Close the producer.

        Without a transactional id the close flushes first, and raises the first unread error of a
        record. With one it aborts an open transaction, unless the transaction is prepared.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._session is None:
                await self._sender.flush()
            elif self._session.should_abort:
                self._session.timeout_ms = min(self._session.timeout_ms, CLOSE_TIMEOUT_MS)
                with contextlib.suppress(KafkaError):  # the cluster aborts it after its timeout
                    await self._session.abort(self._sender)
        finally:
            if self._session is not None:
                await self._session.close()
            await self._sender.close()
            if self._owns_view:
                await self._view.close()
        if self._session is None:
            self._raise_unseen()

    def _drop(self) -> None:
        """Close the connections immediately, unless the caller has given the view."""
        if self._owns_view:
            self._view.drop()

    # --- transactions

    @property
    def transaction(self) -> object:
        """A token of the open transaction, which is a new object for each transaction.

        The token is None without a transaction.
        """
        return self._session and self._session.scope

    def require_same(self, transaction: object) -> None:
        """Raise IllegalProducerState if the transaction of this token is over."""
        if self._session is not None:
            self._session.require_same(transaction)

    def require_transaction(self) -> None:
        """Raise as `send` does when no transaction is open. The producer has a transactional id."""
        self._transactional.identity.require(Call.SEND)

    @property
    def _transactional(self) -> TransactionSession:
        if self._session is None:
            raise IllegalProducerState("this producer has no transactional.id")
        if self._is_closed:
            raise self._why_closed()
        return self._session

    @property
    def ends_sent(self) -> int:
        """Return how many EndTxn requests were sent so far, repeated ones included.

        If a failed commit has sent several, its outcome is in doubt.
        """
        return 0 if self._session is None else self._session.requests.ends_sent

    @property
    def lost_answers(self) -> int:
        """The number of requests to coordinators so far that got no answer.

        These requests may still take effect, even twice.
        """
        return 0 if self._session is None else self._session.requests.lost_answers

    async def init_transactions(
        self, *, keep_prepared_transaction: bool = False
    ) -> PreparedTransaction | None:
        """Take the transactional id over, fence its older producer, and abort its transaction.

        With `keep_prepared_transaction` a prepared transaction is kept, and its token is returned
        (KIP-939). The producer is then IN_TRANSACTION, so commit, abort, or `complete` the kept
        transaction. Apache Kafka 4.3 does not support this and raises UnsupportedVersion.
        """
        return await self._transactional.init(keep_prepared=keep_prepared_transaction)

    async def begin_transaction(self) -> None:
        """Begin a transaction. The state must be READY."""
        await self._transactional.begin()
        self._sender.unseen.take()  # of the last transaction, whose end has reported them

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata | str,
    ) -> None:
        """Commit consumed offsets with the transaction.

        offsets: the next offset to read, by (topic, partition). group_metadata: the metadata of the
        consumer, with which a member that the group has removed is refused (KIP-447). A plain group
        id is not checked.
        """
        group = GroupMetadata(group_metadata) if isinstance(group_metadata, str) else group_metadata
        await self._transactional.send_offsets(with_metadata(offsets), group)

    async def commit_transaction(self) -> None:
        """Flush and commit the transaction, or raise the error that prevents the commit."""
        await self._transactional.commit(self._sender)

    async def abort_transaction(self) -> None:
        """Abort the transaction, so that none of its records becomes visible."""
        await self._transactional.abort(self._sender)

    async def prepare(self, *, may_time_out: bool = False) -> PreparedTransaction:
        """Flush, and return the token with which any process can `complete` the transaction.

        may_time_out: also allowed without two-phase commit. Then the cluster aborts the transaction
        after transaction.timeout.ms, counted from its first record, and `complete` raises an error
        about the abort.
        """
        return await self._transactional.prepare(self._sender, may_time_out=may_time_out)

    async def complete(self, token: PreparedTransaction | str, commit: bool) -> None:
        """End a prepared transaction of any producer. See `prepared.complete`."""
        known = PreparedTransaction.parse(token) if isinstance(token, str) else token
        if self._session is not None and self._session.kept == known:
            await (self.commit_transaction() if commit else self.abort_transaction())
            return
        await complete(self._view, token, commit, timeout_ms=self.settings.max_block_ms)

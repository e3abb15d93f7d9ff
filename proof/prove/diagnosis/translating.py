"""Translates the proxy's requests and answers to sightings (facts about requests).

The file does no I/O, and only `Translator` has a state (names of topics, and that budget). Records
are decoded as far as a budget allows, as an observer must not slow down the application.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

from ....deploy.faults.protocol_proxy.events import (
    Answer,
    ConnectionClosed,
    ConnectionOpened,
    Event,
    FaultMade,
    Request,
)
from ....deploy.faults.protocol_proxy.subjects import TopicNames
from ....wire.error_codes import ErrorCode
from ....wire.errors import KafkaError, error_for
from ....wire.primitives import Buffer, MalformedFrame
from ....wire.record_batch import BatchHeader, iterate_batches
from ....wire.records import decode_batch
from . import seen as s

BATCH_BYTES_MAX = 64 * 1024  # limit of a batch whose records are examined
UNFOLDED_BYTES_MAX = 1024 * 1024  # the same after decompression, which takes 4 ms at most
RECORDS_PER_S_MAX, UNFOLDED_BYTES_PER_S_MAX = 4_000, 4 * UNFOLDED_BYTES_MAX
NO_MEMBER_GENERATION = -1
REFUSALS = frozenset((  # errors before an append
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
))  # fmt: skip
REQUIRE_STABLE_FROM = 7
DELIVERED, HELD = "delivered", "held"
HELD_APIS = frozenset(("Produce", "EndTxn"))  # a client may give up before their answer comes
LATE_S = 2.0
TRANSACTIONAL = frozenset(("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"))
WAIT_FOR_OTHERS = frozenset(("Fetch", "ShareFetch", "JoinGroup", "SyncGroup"))


class Translator:
    def __init__(self) -> None:
        self._names = TopicNames()
        self._second, self._budget, self._budget_bytes = -1, 0, 0
        # Answers of HELD_APIS that no client has yet, by connection and correlation id.
        self._held = dict[tuple[int, int], Answer]()

    def sightings(self, event: Event) -> Iterator[s.Sighting]:
        """Yield the sightings of one event of the proxy, in order.

        A body that the broker will refuse as malformed gives only its SeenRequest.
        """
        try:
            if isinstance(event, Request):
                yield s.SeenRequest(**_place(event, event.at_s), api=event.api)
                self._forget_ends_before(event)
                yield from self._asked(event)
            elif isinstance(event, FaultMade):
                yield from _waited(event.request, event.at_s)
                if (released := self._held.pop(_number(event.request), None)) is not None:
                    for one in self._answered(released):
                        yield replace(one, at_s=event.at_s)
            elif isinstance(event, Answer):
                yield from _waited(event.request, event.at_s)
                if event.fate == HELD and event.request.api in HELD_APIS:
                    self._held[_number(event.request)] = event
                elif event.is_from_broker:
                    yield from self._answered(event)
                elif event.request.api == "Produce":
                    yield s.SeenProduced(
                        **_place(event.request, event.at_s),
                        number=event.request.correlation_id,
                        has_error=True,
                        is_refused=True,
                    )
            elif isinstance(event, (ConnectionOpened, ConnectionClosed)):
                kind = s.SeenOpened if isinstance(event, ConnectionOpened) else s.SeenClosed
                link = event.connection
                for number in [number for number in self._held if number[0] == link.id]:
                    # Its rule has ended with the connection, so its client never gets it.
                    for one in self._answered(self._held.pop(number), is_lost=True):
                        yield replace(one, at_s=event.at_s)
                yield kind(at_s=event.at_s, instance=link.instance, connection=link.id)
        except (MalformedFrame, KafkaError, ValueError):
            return

    # -- requests

    def _forget_ends_before(self, request: Request) -> None:
        """Forget held answers to EndTxn if their client uses the transactional id again.

        It has given up the answer, which would seem to end its next transaction.
        """
        if request.api in TRANSACTIONAL:
            for number, held in list(self._held.items()):
                old = held.request
                is_of_instance = old.api == "EndTxn" and old.instance == request.instance
                if is_of_instance and _id_of(old.body) == _id_of(request.body):
                    del self._held[number]

    def _asked(self, request: Request) -> Iterator[s.Sighting]:
        api, place = request.api, _place(request, request.at_s)
        if api == "Produce":
            body = request.body
            yield s.SeenProduce(
                **place,
                number=request.correlation_id,
                acks=body.acks,
                transactional_id=body.transactional_id or "",
                batches=tuple(self._sent(body, request.at_s)),
            )
        elif api == "Fetch":
            body = request.body
            if body.replica_id < 0:
                yield s.SeenFetch(
                    **place,
                    positions=tuple(
                        ((self._topic(t), p.index), p.fetch_offset)
                        for t in body.topics
                        for p in t.partitions
                    ),
                )
        elif api == "OffsetCommit":
            offsets = self._offsets(request.body.topics)
            yield s.SeenOffsetCommit(**place, group=request.body.group_id, offsets=offsets)
        elif api == "TxnOffsetCommit":
            body = request.body
            has_member = bool(getattr(body, "member_id", ""))
            generation = _generation(body)
            yield s.SeenTxnOffsetCommit(
                **place,
                number=request.correlation_id,
                group=body.group_id,
                transactional_id=body.transactional_id,
                is_fenced=has_member and generation != NO_MEMBER_GENERATION,
                offsets=self._offsets(body.topics),
            )
        elif api == "AddOffsetsToTxn":
            yield s.SeenAdd(**place, transactional_id=request.body.transactional_id)
        elif api == "AddPartitionsToTxn":
            if name := getattr(request.body, "v3_and_below_transactional_id", ""):
                yield s.SeenAdd(**place, transactional_id=name)
        elif api == "EndTxn":
            body = request.body
            yield s.SeenEndTxn(
                **place,
                transactional_id=body.transactional_id,
                is_commit=body.committed,
                version=request.version,
            )
        elif api in ("Heartbeat", "ConsumerGroupHeartbeat"):
            yield s.SeenHeartbeat(**place, group=request.body.group_id)

    def _sent(self, body: Any, at_s: float) -> Iterator[s.SentBatch]:
        for topic in body.topics:
            for partition in topic.partitions:
                for at, header in _batches(partition.records):
                    yield s.SentBatch(
                        partition=(self._topic(topic), partition.index),
                        producer_id=header.producer_id,
                        epoch=header.producer_epoch,
                        base_sequence=header.base_sequence,
                        crc=header.crc,
                        is_transactional=header.is_transactional,
                        count=header.record_count,
                        records=tuple(
                            (key_hash(r), hash((r.key, r.value)))
                            for r in self._records(partition.records, at, header, at_s)
                        ),
                    )

    # -- answers

    def _answered(self, answer: Answer, *, is_lost: bool = False) -> Iterator[s.Sighting]:
        request = answer.request
        api, asked, place = request.api, request.body, _place(request, answer.at_s)
        is_known = answer.fate in (DELIVERED, HELD) and not is_lost
        if api == "Metadata":
            self._names.learn(answer.body.topics)
        elif api == "Produce":
            yield from self._produced(answer, place, is_known)
        elif not is_known:
            return
        elif api == "Fetch":
            if asked.replica_id < 0:
                yield from self._fetched(answer, place)
        elif answer.error_code:
            if api == "EndTxn":
                yield s.SeenEndRefused(**place, transactional_id=asked.transactional_id)
            elif api == "TxnOffsetCommit":
                yield s.SeenOffsetsRefused(
                    **place,
                    number=request.correlation_id,
                    group=asked.group_id,
                    transactional_id=asked.transactional_id,
                    error=error_for(answer.error_code).code.name,
                )
        elif api == "InitProducerId":
            yield s.SeenInit(
                **place,
                transactional_id=asked.transactional_id or "",
                producer_id=answer.body.producer_id,
                epoch=answer.body.producer_epoch,
                timeout_ms=asked.transaction_timeout,
            )
        elif api == "EndTxn":
            name = asked.transactional_id
            yield s.SeenEnded(**place, transactional_id=name, is_commit=asked.committed)
        elif api == "JoinGroup":
            rebalance_ms = getattr(asked, "rebalance_timeout", asked.session_timeout)
            yield s.SeenJoin(
                **place,
                group=asked.group_id,
                session_ms=_ms(asked.session_timeout),
                rebalance_ms=_ms(rebalance_ms),
            )
        elif api == "ConsumerGroupHeartbeat":
            if answer.body.assignment is not None:
                yield s.SeenJoin(**place, group=asked.group_id)
        elif api == "OffsetFetch":
            yield from self._offsets_fetched(request, answer, place)

    def _produced(
        self, answer: Answer, place: dict[str, Any], is_known: bool
    ) -> Iterator[s.SeenProduced]:
        """Yield a sighting for all batches, or for each of their results if these differ."""
        results = defaultdict[tuple[bool, bool], set[s.Partition]](set)
        for topic in answer.body.topics:
            for each in topic.partitions:
                result = (each.error_code != ErrorCode.NONE, each.error_code in REFUSALS)
                results[result].add((self._topic(topic), each.index))
        left = len(results)
        for (has_error, is_refused), partitions in (results or {(False, False): ()}).items():
            left -= 1
            yield s.SeenProduced(
                **place,
                number=answer.request.correlation_id,
                partitions=frozenset(partitions if left > 0 else ()),
                is_known=is_known and (is_refused or not has_error),
                has_error=has_error,
                is_refused=is_refused,
            )

    def _fetched(self, answer: Answer, place: dict[str, Any]) -> Iterator[s.SeenRecords]:
        is_committed = answer.request.body.isolation_level == 1
        for topic in answer.body.topics:
            for partition in topic.partitions:
                for at, header in _batches(partition.records):
                    if header.is_control:
                        continue
                    records = self._records(partition.records, at, header, answer.at_s)
                    yield s.SeenRecords(
                        **place,
                        partition=(self._topic(topic), partition.index),
                        is_transactional=header.is_transactional,
                        is_read_committed=is_committed,
                        keys=tuple((r.offset, key_hash(r)) for r in records),
                        end_offset=header.next_offset,
                    )

    def _offsets_fetched(
        self, request: Request, answer: Answer, place: dict[str, Any]
    ) -> Iterator[s.SeenOffsetFetch]:
        asked, told = request.body, answer.body
        is_stable = request.version >= REQUIRE_STABLE_FROM and asked.require_stable
        groups = getattr(told, "groups", None)
        if groups is None:
            found = self._offsets(told.topics)
            yield s.SeenOffsetFetch(
                **place, group=asked.group_id, is_stable=is_stable, offsets=found
            )
            return
        for each in groups:
            found = self._offsets(each.topics)
            yield s.SeenOffsetFetch(
                **place, group=each.group_id, is_stable=is_stable, offsets=found
            )

    # -- small ones

    def _records(self, buffer: Buffer, at: int, header: BatchHeader, at_s: float) -> list[Any]:
        """Return the records of a batch, or none if they exceed the budget or are malformed."""
        if int(at_s) != self._second:
            self._second, self._budget = int(at_s), RECORDS_PER_S_MAX
            self._budget_bytes = UNFOLDED_BYTES_PER_S_MAX
        if header.size_bytes > BATCH_BYTES_MAX or not 0 <= header.record_count <= self._budget:
            return []
        if header.compression and self._budget_bytes <= 0:
            return []
        self._budget -= header.record_count
        unfolded_bytes = UNFOLDED_BYTES_MAX
        try:
            records = decode_batch(buffer, at, max_decompressed_bytes=UNFOLDED_BYTES_MAX)
            unfolded_bytes = sum(len(r.key or b"") + len(r.value or b"") for r in records)
        except KafkaError:
            records = []
        self._budget_bytes -= unfolded_bytes if header.compression else 0
        return records

    def _offsets(self, topics: Any) -> s.Offsets:
        return tuple(
            ((self._topic(topic), p.partition_index), p.committed_offset)
            for topic in topics or ()
            for p in topic.partitions
        )

    def _topic(self, topic: Any) -> str:
        topic_id: bytes = getattr(topic, "topic_id", None) or b""
        return getattr(topic, "name", None) or self._names.get(topic_id, f"id:{topic_id.hex()}")


def _batches(records: Buffer | None) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches of a partition, up to a malformed one or one of an old format."""
    try:
        yield from iterate_batches(records or b"")
    except KafkaError:
        return


def _generation(body: Any) -> int:
    """Return the generation of a TxnOffsetCommit, or -1 for versions before 3, which have none."""
    if hasattr(body, "generation_id_or_member_epoch"):
        return body.generation_id_or_member_epoch
    return getattr(body, "generation_id", NO_MEMBER_GENERATION)


def _id_of(body: Any) -> str:
    return getattr(body, "transactional_id", "") or ""


def _number(request: Request) -> tuple[int, int]:
    return request.connection.id, request.correlation_id


def _place(request: Request, at_s: float) -> dict[str, Any]:
    return {"at_s": at_s, "instance": request.instance, "connection": request.connection.id}


def _waited(request: Request, at_s: float) -> Iterator[s.SeenWait]:
    waited_s = at_s - request.at_s
    if waited_s > LATE_S and request.api not in WAIT_FOR_OTHERS:
        yield s.SeenWait(**_place(request, at_s), api=request.api, waited_s=waited_s)


class Keyed(Protocol):
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


def key_hash(record: Keyed) -> int:
    """Return the hash of a record's key, or of its value if the key is null."""
    return hash(record.value if record.key is None else record.key)


def _ms(value: Any) -> int:
    return int(value)

"""The reading of a topic from one position to another, alone or as a member of a group."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ...client.admin import EARLIEST, LATEST, Admin
from ...client.cluster_view import ClusterView
from ...client.consumer import Consumer, ConsumerRecord
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.silence import tell_silence
from ...deploy.cluster.terminal import say
from ...wire.errors import UnknownTopicOrPartition
from ...wire.identifiers import TopicPartition
from .json_lines import HEX, JSON, Decoded, parsed
from .places import LogPlace, OutOfRange, start_of
from .registry import ByRegistry, Part, registry_decoder

Decode = Literal["raw", "hex", "json", "avro", "jsonschema", "protobuf"]
Decoder = Callable[[bytes, ConsumerRecord], Decoded]
"""From a record's key or value to what it says; raises ValueError with the reason."""

assert set(get_args(ByRegistry)) < set(get_args(Decode))


def decoder(how: Decode, part: Part, registry: Callable[[], str]) -> Decoder | None:
    """Return a decoder of keys or values, or None for raw, which stays unchanged.

    registry: a function that returns the address of the Schema Registry, called only if needed.
    """
    if how == "raw":
        return None
    if how == "hex":
        return lambda data, record: Decoded(data.hex(), HEX)
    if how == "json":
        return lambda data, record: Decoded(parsed(data), JSON)
    decode = registry_decoder(how, part, registry())
    return lambda data, record: Decoded(decode(data, record), JSON)


def decoded(decode: Decoder | None, record: ConsumerRecord, part: Part) -> Decoded | None:
    """Return the decoded key or value of a record, or None if it is null or there is no decoder.

    Raises Failure with the record's offset for bytes that cannot be decoded.
    """
    data = record.value if part == "value" else record.key
    if decode is None or data is None:
        return None
    try:
        return decode(data, record)
    except ValueError as problem:
        option = "--decode" if part == "value" else "--decode-key"
        where = f"{record.topic}/{record.partition}"
        raise Failure(
            f"The {part} of {where} at offset {record.offset} cannot be decoded: {problem}. Its "
            f"bytes are shown by {option} raw or hex."
        ) from None


POLL_MS = 1_000
EARLIEST_PLACE = LogPlace("earliest")
Isolation = Literal["read_uncommitted", "read_committed"]
Emit = Callable[[list[ConsumerRecord]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrder:
    """A request to read a topic.

    Without `partitions`, all partitions are read. Reading stops before `until`, and without
    `follow` also at the end of the log.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    begin: LogPlace = EARLIEST_PLACE
    until: LogPlace | None = None
    group: str | None = None
    limit: int | None = None
    follow: bool = False
    isolation: Isolation = "read_uncommitted"


class Stops:
    """The offsets where `consume` stops in each partition, and the partitions still to read.

    by_key: the first offset that is not read, or None if there is no such offset yet.
    """

    def __init__(self, until: LogPlace | None) -> None:
        self._until_ms = until.number if until is not None and until.kind == "time" else None
        self.by_key: dict[TopicPartition, int | None] = {}
        self.unfinished: set[TopicPartition] = set()

    def add(self, key: TopicPartition, stop: int | None, position: int) -> None:
        """Set the stop of a partition, which is unfinished unless `position` is at the stop."""
        self.by_key[key] = stop
        if stop is None or position < stop:
            self.unfinished.add(key)

    def takes(self, record: ConsumerRecord) -> bool:
        """Return whether to print a record.

        A record at or after the stop, or as late as the time of --until, finishes its partition.
        """
        key = (record.topic, record.partition)
        if key not in self.unfinished:
            return False
        stop = self.by_key[key]
        is_wanted = (stop is None or record.offset < stop) and (
            self._until_ms is None or record.timestamp < self._until_ms
        )
        if not is_wanted:
            self.unfinished.discard(key)
        return is_wanted

    def reached(self, key: TopicPartition, position: int) -> bool:
        """Return whether `position` is at the stop of a partition, and if so finish the partition.

        A partition without a stop is never finished here.
        """
        stop = self.by_key.get(key)
        if stop is None or position < stop:
            return False
        self.unfinished.discard(key)
        return True

    def lose(self, key: TopicPartition) -> None:
        """Stop reading a partition that another group member now owns."""
        self.by_key.pop(key, None)
        self.unfinished.discard(key)


async def read(view: ClusterView, order: ReadOrder, emit: Emit) -> int:
    """Read as `order` requests, and pass the records to `emit` as they arrive. Return their number.

    Raises Failure if no partition has the first offset.
    """
    reader = _Reader(view, order, emit)
    tell_silence(Admin(view))
    return await (reader.alone() if order.group is None else reader.in_group(order.group))


class _Reader:
    def __init__(self, view: ClusterView, order: ReadOrder, emit: Emit) -> None:
        self._view, self._order, self._emit = view, order, emit
        self._admin = Admin(view)
        self._stops = Stops(order.until)
        self._count = 0

    async def alone(self) -> int:
        """Read the order's partitions without a group. Return the number of printed records."""
        keys = await self._keys()
        starts, ends = await self._offsets(keys, EARLIEST), await self._ends(keys)
        times = await self._times(keys, self._order.begin)
        limits = ends
        if self._order.begin.kind == "offset" and self._order.isolation == "read_committed":
            limits = await self._offsets(keys, LATEST)  # what is open has offsets, too
        positions = await self._positions(keys, starts, limits, times)
        stops = await self._stop_offsets(keys, ends)
        for key, position in positions.items():
            self._stops.add(key, stops[key], position)
        isolation = self._order.isolation
        async with Consumer(
            self._view, isolation_level=isolation, auto_offset_reset="none"
        ) as consumer:
            consumer.assign({key: positions[key] for key in self._stops.unfinished})
            while self._stops.unfinished and not self._is_full:
                await self._turn(consumer)
        return self._count

    async def in_group(self, group: str) -> int:
        """Read as a member of a group. Return the number of printed records.

        The offsets of printed records are committed.
        """
        reset = self._order.begin.kind
        async with Consumer(
            self._view,
            group_id=group,
            isolation_level=self._order.isolation,
            auto_offset_reset=reset,
            enable_auto_commit=True,
        ) as consumer:
            keys = await self._keys()
            if self._order.partitions:
                consumer.assign(keys)
            else:
                consumer.subscribe([self._order.topic], on_revoked=self._lose, on_lost=self._lose)
            began_s = time.monotonic()
            while not self._is_full:
                await self._turn(consumer)
                new = [key for key in consumer.assignment if key not in self._stops.by_key]
                stops = await self._stop_offsets(new, await self._ends(new)) if new else {}
                for key, stop in stops.items():
                    self._stops.add(key, stop, consumer.position(*key))
                if not self._order.follow and self._is_done(consumer, group, began_s):
                    break
        return self._count

    def _is_done(self, consumer: Consumer, group: str, began_s: float) -> bool:
        if consumer.assignment:
            return not self._stops.unfinished
        if self._order.partitions or consumer.group_metadata().generation_id < 0:
            return False
        if time.monotonic() - began_s < 2 * POLL_MS / 1000:
            return False
        say(f"group {group} has given no partition to this member: its other members have them all")
        return True

    def _lose(self, keys: list[TopicPartition]) -> None:
        for key in keys:
            self._stops.lose(key)

    @property
    def _is_full(self) -> bool:
        return self._order.limit is not None and self._count >= self._order.limit

    async def _turn(self, consumer: Consumer) -> None:
        """Poll once, print the wanted records, and stop reading finished partitions."""
        limit = self._order.limit
        polled = await consumer.poll(POLL_MS, limit and limit - self._count)
        taken: list[ConsumerRecord] = []
        for record in polled:
            key = (record.topic, record.partition)
            if key not in self._stops.by_key:  # given to us by this very poll
                (stop,) = (await self._stop_offsets([key], await self._ends([key]))).values()
                self._stops.add(key, stop, record.offset)
            was_open = key in self._stops.unfinished
            if self._stops.takes(record):
                taken.append(record)
            elif was_open:  # the first offset for the next reader
                consumer.seek(*key, record.offset)
                consumer.pause(key)
        self._emit(taken)
        self._count += len(taken)
        for key in self._stops.unfinished.intersection(consumer.assignment):
            if self._stops.reached(key, consumer.position(*key)):
                consumer.pause(key)

    # -- offsets

    async def _keys(self) -> list[TopicPartition]:
        topic, asked = self._order.topic, self._order.partitions
        there = [p.partition for p in await self._admin.describe_topics([topic])]
        if missing := [p for p in asked if p not in there]:
            raise UnknownTopicOrPartition(
                f"{topic}/{missing[0]} is not there: {topic} has partitions 0 to {len(there) - 1}"
            )
        return [(topic, p) for p in (asked or there)]

    async def _offsets(self, keys: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
        return await self._admin.list_offsets(dict.fromkeys(keys, at))

    async def _ends(self, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        is_committed = self._order.isolation == "read_committed"
        return await self._admin.list_offsets(
            dict.fromkeys(keys, LATEST), read_committed=is_committed
        )

    async def _times(
        self, keys: list[TopicPartition], place: LogPlace | None
    ) -> dict[TopicPartition, int]:
        if place is None or place.kind != "time":
            return {}
        return await self._offsets(keys, max(0, place.number))

    async def _positions(
        self,
        keys: list[TopicPartition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        times: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the first offset to read in each partition that has it.

        Partitions without this offset are reported and left out. Raises Failure if all are.
        """
        found: dict[TopicPartition, int] = {}
        outside: list[str] = []
        place = self._order.begin
        for key in keys:
            try:
                found[key] = start_of(place, starts[key], ends[key], times.get(key))
            except OutOfRange as problem:
                outside.append(f"{key[0]}/{key[1]} has no offset {place.number}: {problem}")
        if outside and not found:
            raise Failure(f"{outside[0]}.")
        for sentence in outside:
            say(f"{sentence}; the other partitions are read")
        return found

    async def _stop_offsets(
        self, keys: list[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset of each partition that is not read.

        It is the offset of --until, and without -f at most the log's end in `ends`. With -f it is
        None without --until, or while no record is as late as the time of --until.
        """
        until, follow = self._order.until, self._order.follow
        times = await self._times(keys, until)
        found: dict[TopicPartition, int | None] = {}
        for key in keys:
            stop = None if follow else ends[key]
            if until is not None and until.kind == "offset":
                stop = until.number if stop is None else min(until.number, stop)
            elif (at := times.get(key, -1)) >= 0:
                stop = at if stop is None else min(at, stop)
            found[key] = stop
        return found

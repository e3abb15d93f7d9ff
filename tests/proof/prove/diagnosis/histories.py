"""The requests of an application as a proxy sees them, correct or with chosen mistakes.

`Application` is a correct consume-transform-produce loop with transactions, unless a field requests
a mistake. It yields each request as a `Sighting`, the form in which the diagnosis gets it.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from oncelog.proof.prove.diagnosis import seen as s

INPUT, OUTPUT, GROUP = "orders", "invoices", "billing"
IDS = count(1000)


@dataclass
class Application:
    """One instance of an application. Each request adds `step_s` to its time."""

    instance: str = "instance-1"
    name: str = "billing-1"  # transactional id; empty: no transactions
    partition: int = 0
    at_s: float = 100.0
    step_s: float = 0.01
    offset: int = 0
    is_fenced: bool = True
    is_stable: bool = True
    is_read_committed: bool = True
    acks: int = -1
    producer_id: int = 7
    timeout_ms: int = 60_000
    version: int = 5
    connections: tuple[int, int] = field(default_factory=lambda: (next(IDS), next(IDS)))
    number: int = 0
    keys: int = 0  # the number of keys of the inputs; 0: each has its own
    output_key: Callable[[int], int] = int  # from the input's key

    @property
    def reader(self) -> int:
        return self.connections[0]

    @property
    def writer(self) -> int:
        return self.connections[1]

    def at(self, connection: int) -> dict:
        self.at_s += self.step_s
        return {"at_s": self.at_s, "instance": self.instance, "connection": connection}

    def sign(self, api: str = "Fetch") -> s.SeenRequest:
        return s.SeenRequest(**self.at(self.reader), api=api)

    def start(self) -> Iterator[s.Sighting]:
        for connection in self.connections:
            yield s.SeenOpened(**self.at(connection))
        if self.name or self.producer_id >= 0:
            yield self.init()
        yield from self.join()

    def init(self) -> s.SeenInit:
        return s.SeenInit(
            **self.at(self.writer), transactional_id=self.name, producer_id=self.producer_id,
            timeout_ms=self.timeout_ms,
        )  # fmt: skip

    def join(self, waits_s: float = 0.0) -> Iterator[s.Sighting]:
        """Join the group, and wait `waits_s` for the other members."""
        yield self.sign("JoinGroup")
        self.at_s += waits_s
        yield s.SeenJoin(**self.at(self.reader), group=GROUP)
        place = ((INPUT, self.partition), self.offset)
        yield s.SeenOffsetFetch(
            **self.at(self.reader), group=GROUP, is_stable=self.is_stable, offsets=(place,)
        )

    def stop(self) -> Iterator[s.Sighting]:
        for connection in self.connections:
            yield s.SeenClosed(**self.at(connection))

    def fetch(self, records: int = 3, offset: int | None = None) -> Iterator[s.Sighting]:
        first = self.offset if offset is None else offset
        yield self.sign()
        yield s.SeenFetch(**self.at(self.reader), positions=(((INPUT, self.partition), first),))
        yield s.SeenRecords(
            **self.at(self.reader), partition=(INPUT, self.partition), is_transactional=True,
            is_read_committed=self.is_read_committed,
            keys=tuple((first + n, self.key(first + n)) for n in range(records)),
            end_offset=first + records,
        )  # fmt: skip

    def key(self, offset: int) -> int:
        number = self.partition * 1_000_000 + offset
        return number % self.keys if self.keys else number

    def inputs(self, offsets: Iterable[int]) -> frozenset[tuple[s.Partition, int]]:
        return frozenset(((INPUT, self.partition), offset) for offset in offsets)

    def produce(
        self, *offsets: int, producer_id: int | None = None, topic: str = OUTPUT, name: str = "="
    ) -> s.SeenProduce:
        name = self.name if name == "=" else name
        self.number += 1
        keys = [self.output_key(self.key(each)) for each in offsets]
        batch = s.SentBatch(
            partition=(topic, 0),
            producer_id=self.producer_id if producer_id is None else producer_id,
            is_transactional=bool(name),
            count=len(keys),
            records=tuple((key, key + 1) for key in keys),
        )
        return s.SeenProduce(
            **self.at(self.writer), number=self.number, acks=self.acks, transactional_id=name,
            batches=(batch,),
        )  # fmt: skip

    def produced(self, is_known: bool = True) -> s.SeenProduced:
        return s.SeenProduced(**self.at(self.writer), number=self.number, is_known=is_known)

    def commit(self, offset: int) -> s.SeenOffsetCommit:
        return s.SeenOffsetCommit(
            **self.at(self.reader), group=GROUP, offsets=(((INPUT, self.partition), offset),)
        )

    def copy(self, commit_s: float, records: int = 3) -> Iterator[s.Sighting]:
        """Run one cycle without a transaction, and commit its offsets at `commit_s`."""
        yield from self.fetch(records)
        for offset in range(self.offset, self.offset + records):
            yield self.produce(offset)
        self.offset += records
        self.at_s = commit_s
        yield self.commit(self.offset)

    def send_offsets(self, offset: int) -> s.SeenTxnOffsetCommit:
        return s.SeenTxnOffsetCommit(
            **self.at(self.writer), group=GROUP, transactional_id=self.name,
            is_fenced=self.is_fenced, offsets=(((INPUT, self.partition), offset),),
        )  # fmt: skip

    def refused(self, error: str = "STALE_MEMBER_EPOCH") -> s.SeenOffsetsRefused:
        return s.SeenOffsetsRefused(
            **self.at(self.writer), group=GROUP, transactional_id=self.name, error=error
        )

    def end(self, is_commit: bool = True) -> Iterator[s.Sighting]:
        yield s.SeenEndTxn(
            **self.at(self.writer), transactional_id=self.name, is_commit=is_commit,
            version=self.version,
        )  # fmt: skip
        yield s.SeenEnded(**self.at(self.writer), transactional_id=self.name, is_commit=is_commit)

    def transaction(
        self, records: int = 3, *, is_commit: bool = True, with_offsets: bool = True
    ) -> Iterator[s.Sighting]:
        """Run one transaction with fetch, produce, offsets and end.

        An abort does not change the offset.
        """
        first = self.offset
        yield from self.fetch(records)
        for offset in range(first, first + records):
            yield self.produce(offset)
            yield self.produced()
        if with_offsets:
            yield self.send_offsets(first + records)
        yield from self.end(is_commit)
        if is_commit:
            self.offset += records

    def unanswered_commit(self) -> Iterator[s.Sighting]:
        """Run a transaction of one record, and send an EndTxn that has no answer."""
        yield from self.fetch()
        yield self.produce(self.offset)
        yield self.produced()
        yield self.send_offsets(self.offset + 1)
        yield next(self.end())

    def run(self, times: int = 10) -> Iterator[s.Sighting]:
        for _ in range(times):
            yield from self.transaction()


def together(first: s.SeenProduce, second: s.SeenProduce) -> s.SeenProduce:
    """Return one Produce with the batches of both, which has the number of the second one."""
    return replace(second, batches=first.batches + second.batches)


def results(answer: s.SeenProduced, **fields: bool) -> Iterator[s.SeenProduced]:
    """Return an answer with this error for the batches of `OUTPUT`, and success for the others."""
    yield replace(answer, partitions=frozenset({(OUTPUT, 0)}), has_error=True, **fields)
    yield answer


def started(**fields: Any) -> Generator[s.Sighting, None, Application]:
    app = Application(**fields)
    yield from app.start()
    return app


def numbered(
    app: Application, *offsets: int, sequence: int = 0, epoch: int = 0, topic: str = OUTPUT
) -> s.SeenProduce:
    """Return a Produce with this base sequence, and a CRC that depends on its content."""
    sent = app.produce(*offsets, topic=topic)
    crc = hash((offsets, sequence, epoch))
    batch = replace(sent.batches[0], epoch=epoch, base_sequence=sequence, crc=crc)
    return replace(sent, batches=(batch,))


def aborted_batch(app: Application, *, is_answered: bool = True) -> Iterator[s.Sighting]:
    """Write a batch of three records, abort, and read the inputs again.

    The client has no answer to the Produce. With `is_answered` a broker has written the batch.
    """
    yield from app.fetch(6)
    yield numbered(app, 0, 1, 2)
    if is_answered:
        yield app.produced(is_known=False)
    yield from app.end(is_commit=False)
    yield from app.fetch(6)

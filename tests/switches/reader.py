"""A read_committed consumer that reads from the start of a topic, and records its polls."""

from oncelog.client.consumer import Consumer
from oncelog.proof.chaos.load.payloads import value_of

from .context import TIMEOUT_S, Context


class Reader:
    """A consumer of some partitions. `values` has the values of all records read so far."""

    def __init__(self, context: Context, topic: str, partitions: tuple[int, ...] = (0,)) -> None:
        self._recorder = context.recorder
        self._process = context.recorder.new_process()
        self._consumer = Consumer(
            context.cluster.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="none",
            request_timeout_ms=2_000,
            fetch_max_wait_ms=100,
        )
        self._consumer.assign({(topic, p): 0 for p in partitions})
        for p in partitions:
            self._recorder.assigned(self._process, 1, f"{topic}/{p}", 0)
        self.values: list[int] = []

    async def poll(self, timeout_ms: int) -> int:
        """Poll once, record the result in the history, and return the number of records."""
        call, row = self._recorder.poll_invoked(self._process)
        records = await self._consumer.poll(timeout_ms)
        returned_ns = self._recorder.poll_returned(row)
        for record in records:
            value = value_of(record.value)
            self.values.append(value)
            self._recorder.polled(
                self._process,
                call,
                f"{record.topic}/{record.partition}",
                record.offset,
                value,
                returned_ns=returned_ns,
                session=1,
            )
        return len(records)

    async def read(self, count: int) -> None:
        """Poll until `count` records were read in all. Raises AssertionError after TIMEOUT_S."""
        for _ in range(int(TIMEOUT_S * 10)):
            if len(self.values) >= count:
                return
            await self.poll(100)
        raise AssertionError(f"only {len(self.values)} of {count} records came")

    async def close(self) -> None:
        await self._consumer.close()

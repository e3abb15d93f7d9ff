"""Read, commit: members of a group read what `append` writes, and commit offsets plainly.

No transaction: what was committed last, and was acknowledged, is where the group stands in the end
(check A6).
"""

from functools import partial

from .incarnations import LoadContext, one_after_another, pause
from .recorded_consumer import RecordedConsumer
from .settings import APPEND


async def read_commit(context: LoadContext) -> None:
    """Be a member of the readers until `stop()`, client after client."""
    await one_after_another(partial(_Reader, context), context)


class _Reader:
    """One incarnation of a member."""

    is_over = False

    def __init__(self, context: LoadContext) -> None:
        settings = self._settings = context.settings
        self._rng = context.rng
        self._consumer = RecordedConsumer(
            context.source,
            context.recorder,
            context.recorder.new_process(),
            settings,
            group=settings.readers,
            protocol=settings.protocol_of(settings.readers),
        )
        self.close = self._consumer.close

    async def open(self) -> None:
        self._consumer.subscribe([APPEND])

    async def work(self) -> None:
        """One poll, and the commit of what it brought."""
        settings = self._settings
        records = await self._consumer.poll(5 * settings.poll_ms, settings.job_records_max)
        await self._consumer.commit({(r.topic, r.partition): r.offset + 1 for r in records})
        await pause(settings.pause_ms, self._rng)

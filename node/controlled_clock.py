"""The part of one broker in `oncelog clock advance`, which advances the clock of the cluster.

The periodic checks for timeouts, expiries and old segments run every second, or every few minutes.
After an advance all of them run immediately, even if this broker was down during the advance.
`clock` reports when all checks have run, so that a client can wait for the effect of its advance.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..coordinator.metadata.clock_advances import TOTAL_MS_MAX
from ..coordinator.metadata.cluster_model import Changes
from ..coordinator.metadata.commands import AdvanceClock
from ..coordinator.metadata.rules.clock import CLOCK_KEY, CONTROLLED, NOT_CONTROLLED
from ..runtime.background_task import background_task, end_tasks
from ..wire.errors import RequestTimedOut

if TYPE_CHECKING:
    from .services import BrokerServices

TIMEOUT_MS = 2_000  # long enough for an election; after it the client asks another broker
logger = logging.getLogger(__name__)


class ControlledClock:
    """The part of a broker that runs the periodic checks after an advance of the cluster's clock.

    looks: the periodic checks, in the order in which they run.
    """

    def __init__(
        self, services: "BrokerServices", looks: Sequence[Callable[[], Awaitable[object]]]
    ) -> None:
        self._services = services
        self._looks = looks
        self._known_ms = 0  # the advances that the open logs have
        self._looked_ms = 0  # the advances after which all checks have run
        self._changed = asyncio.Event()
        services.state.on_change(self._cluster_changed)
        self._task = background_task("looks after advances of the clock", self._run())

    async def stop(self) -> None:
        await end_tasks(self._task)

    async def clock(self, _asked: dict[str, Any]) -> dict[str, Any]:
        """Answer {"op": "clock"} of the admin socket with the state of the clock on this broker."""
        state = self._services.state
        advanced_ms = state.clock_advances.total_ms
        return {
            "is_controlled": state.defaults.get(CLOCK_KEY) == CONTROLLED,
            "now_ms": self._services.clock.wall_ms() + advanced_ms,
            "advanced_ms": advanced_ms,
            "looked_ms": self._looked_ms,
        }

    async def advance(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer {"op": "advance-clock", "by_ms": 900000, "operation_id": 32 hexadecimal digits}.

        A request that is repeated with the same id, here or at another broker, is executed once.
        The reply has `advanced_ms`, all advances together. Without it, `refused` is the reason why
        the clock was not advanced, or `unknown` why the outcome is not known.
        """
        clock, controller = self._services.clock, self._services.controller
        if self._services.state.defaults.get(CLOCK_KEY) != CONTROLLED:
            return {"refused": NOT_CONTROLLED}
        at_ms, by_ms = clock.wall_ms(), asked["by_ms"]
        operation_id = bytes.fromhex(asked["operation_id"])
        if type(by_ms) is not int or not 0 < by_ms <= TOTAL_MS_MAX or len(operation_id) != 16:
            raise ValueError("by_ms: 1 ms to 100 years; operation_id: 32 hexadecimal digits")
        command = AdvanceClock(at_ms, by_ms)
        try:
            result = await controller.submit(
                command, timeout_ms=TIMEOUT_MS, operation_id=operation_id
            )
        except RequestTimedOut as error:
            return {"unknown": str(error)}
        if result.error:
            return {"refused": result.message}
        if clock.wall_ms() <= at_ms:
            await asyncio.sleep(0.002)  # so that later records get later timestamps
        return {"advanced_ms": self._services.state.clock_advances.total_ms}

    def _cluster_changed(self, _changes: Changes) -> None:
        advanced_ms = self._services.state.clock_advances.total_ms
        if advanced_ms == self._known_ms:
            return
        self._known_ms = advanced_ms
        advanced_since_ms = self._services.clock.advanced_since_ms
        # logs that are opened later get the clock in `Logs.opened`
        for partition in self._services.replicas:
            partition.log.local.advanced_since_ms = advanced_since_ms
        self._changed.set()

    async def _run(self) -> None:
        while True:
            advanced_ms = self._services.state.clock_advances.total_ms
            if advanced_ms == self._looked_ms:
                self._changed.clear()
                await self._changed.wait()
                continue
            for look in self._looks:
                try:
                    await look()
                except Exception:  # the next periodic run checks again
                    logger.exception("a check after an advance of the clock failed")
            self._looked_ms = advanced_ms
            logger.info(
                "timeouts and expiry were checked after an advance of the clock, which "
                "is %d ms ahead",
                advanced_ms,
            )

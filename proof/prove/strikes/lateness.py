"""Faults that break nothing, which are slow or held requests, and a paused leader.

A slow request keeps one instance busy, and other instances get further slow requests meanwhile. All
other faults wait until the slow request is over, and its sender has had time to react.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ....deploy.cluster.failure import Failure
from ....deploy.cluster.local_cluster import Cluster
from ....deploy.faults.protocol_proxy.events import Request
from ....deploy.faults.protocol_proxy.proxy import ProtocolProxy
from ....deploy.faults.protocol_proxy.rules import Delay, Ending, Match, Rule
from ..facts import Struck
from ..observed import Observed, wait_for
from ..plan import (
    AWAKE_S,
    SIDES,
    SLOW_S,
    STALL_MAX_S,
    STALL_MIN_S,
    AimedFault,
)
from .brokers import broker_of

HOLD_S = (3.0, 6.0)
GO_ON_S = 4.0  # the longest wait for the commit of a late instance
COMES = {"request": "it comes", "answer": "its answer comes"}
Wait = Callable[[Callable[[], bool], float], bool]


class LateStrikes:
    """Injects slow and held requests, and pauses of a leader.

    wait: a function that waits until a condition holds, or until a deadline. instances: the running
    instances. aim_s: how long to wait for a request.
    """

    def __init__(
        self,
        proxy: ProtocolProxy,
        observed: Observed,
        cluster: Cluster | None,
        instances: Callable[[], list[str]],
        wait: Wait,
        *,
        aim_s: float,
        seed: int,
    ) -> None:
        self._proxy, self._observed, self._cluster = proxy, observed, cluster
        self._instances, self._wait, self._aim_s = instances, wait, aim_s
        self._chance = random.Random(f"oncelog prove lateness {seed}")
        self._busy_until_s = dict[str, float]()  # by instance
        self._stalled: tuple[int, float] | None = None  # a broker, and until when
        self._has_stalled = False
        self.until_s = float("-inf")  # until then an idle instance may be waiting

    def slow(self, fault: AimedFault, match: Match) -> Struck | None:
        """Delay the next matching request, and return the fault as soon as the delay has begun.

        Return None if no request matched in time.
        """
        seconds = fault.seconds or self._chance.uniform(*SLOW_S)
        side = fault.side or self._chance.choice(SIDES)
        assert side in ("request", "answer")
        found: list[Request] = []

        def is_first(request: Request) -> bool:
            if found or request.instance in self._busy() or not match.fits(request):
                return False
            found.append(request)
            return True

        self._watched(lambda: len(self._busy()) < len(self._instances()), SLOW_S[1])
        rule = Rule(Match(apis=fault.apis, where=is_first), Delay(seconds, side))
        self._proxy.add(rule)
        try:
            self._watched(lambda: bool(found), self._aim_s)
        finally:
            self._proxy.remove(rule)
        if not found:
            return None
        request = found[0]
        self._lasts(request.at_s + seconds, request.instance)
        what = f"{request.api} of {request.instance}: {COMES[side]} {seconds:.1f} s late"
        met = max(1, self._observed.open_work(request.instance))
        return Struck(
            request.at_s, request.instance, fault.name, what, met, until_s=request.at_s + seconds
        )

    def stall(self, fault: AimedFault, request: Request) -> tuple[Ending, str]:
        """Pause the broker while its request is held, then forward the request to it."""
        broker = broker_of(request)
        assert self._cluster is not None
        seconds = fault.seconds or self._chance.uniform(STALL_MIN_S, STALL_MAX_S)
        self._stalled = (broker, time.monotonic() + seconds)
        try:
            self._cluster.pause(broker)
        except Failure:  # it may have got the signal all the same
            with suppress(Failure):
                self.end()
            raise
        self._lasts(self._stalled[1])
        return None, (
            f"broker {broker} ({fault.about}) stands still for {seconds:.0f} s, at the "
            f"{request.api} of {request.instance}"
        )

    def hold(self, fault: AimedFault, request: Request) -> tuple[Ending, str]:
        """Hold a Produce until its transaction was committed, or for at most a few seconds.

        A correct application does not commit a transaction before all its batches are answered.
        """
        at_s, seconds = time.monotonic(), self._chance.uniform(*HOLD_S)
        name, instance = request.body.transactional_id, request.instance
        has_ended = wait_for(lambda: self._observed.has_committed(name, at_s), seconds)
        end = "until its transaction had been committed" if has_ended else "and nothing overtook it"
        held_s = time.monotonic() - at_s
        self._lasts(time.monotonic())
        return None, f"{request.api} of {instance} was held for {held_s:.1f} s, {end}"

    def wait_until_over(self) -> None:
        """Wait until all late requests are over, and instances had time to react and commit."""
        if not (self._stalled or self._has_stalled or self._busy_until_s):
            return
        self._watched(lambda: self._stalled is None and not self._busy(), STALL_MAX_S)
        time.sleep(AWAKE_S)
        waited = {n: s for n, s in self._busy_until_s.items() if n in self._instances()}
        through = self._observed.has_gone_through
        wait_for(lambda: all(through(n, until_s) for n, until_s in waited.items()), GO_ON_S)
        self._busy_until_s.clear()
        if self._has_stalled and self._cluster is not None:
            self._has_stalled = False
            self._cluster.wait_for_isr()

    def end(self) -> None:
        """Resume the paused broker immediately."""
        if self._stalled is not None and self._cluster is not None:
            broker, self._stalled, self._has_stalled = self._stalled[0], None, True
            self._cluster.resume(broker)

    def _busy(self) -> set[str]:
        now = time.monotonic()
        return {name for name, until_s in tuple(self._busy_until_s.items()) if until_s > now}

    def _lasts(self, until_s: float, instance: str | None = None) -> None:
        self.until_s = max(self.until_s, until_s)
        if instance is not None:
            self._busy_until_s[instance] = until_s

    def _watched(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for a condition, and meanwhile resume the paused broker at the end of its pause."""

        def looks() -> bool:
            if self._stalled is not None and time.monotonic() > self._stalled[1]:
                self.end()
            return holds()

        return self._wait(looks, timeout_s)


def later(struck: Struck, now_s: float) -> Struck:
    """Return the fault, and move its end to `now_s` if it ended before."""
    return replace(struck, until_s=max(struck.until_s, now_s))

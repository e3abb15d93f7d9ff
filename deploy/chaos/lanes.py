"""The lanes of a schedule at work: one thread each, one fault at a time, at an even pace."""

import threading
import time

from ..cluster.failure import Failure
from ..faults.schedule import CLIENTS, LANES, LINKS, NODES, plan
from .client_actions import CLIENT_ACTIONS
from .link_actions import LINK_ACTIONS, heal_links
from .node_actions import NODE_ACTIONS, ensure_all_run
from .plan_settings import RunSettings
from .stage import Action, Stage

ACTIONS: dict[str, dict[str, Action]] = {
    NODES: NODE_ACTIONS,
    LINKS: LINK_ACTIONS,
    CLIENTS: CLIENT_ACTIONS,
}
END_TIMEOUT_S = 120.0


class Lanes:
    """Start them, and end them."""

    def __init__(self, stage: Stage, settings: RunSettings) -> None:
        self._stage, self._settings = stage, settings
        self._interval_s = len(LANES) * 60 / settings.faults_per_minute
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=lane, daemon=True)
            for lane in LANES
        ]
        self.tried = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the faults that are under way end, and heal everything."""
        self._stage.stopping.set()
        deadline = time.monotonic() + END_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
            if thread.is_alive():
                raise Failure(f"The faults of {thread.name} do not end.")
        self._stage.proxies.heal()
        ensure_all_run(self._stage)
        heal_links(self._stage)

    def _run(self, lane: str) -> None:
        stage, settings = self._stage, self._settings
        kinds = frozenset(settings.kinds)
        # the lanes begin one after the other, not in step
        due = time.monotonic() + self._interval_s * (1 + list(LANES).index(lane)) / len(LANES)
        for planned in plan(settings.seed, lane, nodes=settings.nodes, kinds=kinds):
            stage.sleep(due - time.monotonic())
            if stage.stopping.is_set():
                return
            due = max(due + self._interval_s, time.monotonic())
            if lane == NODES:
                try:
                    ensure_all_run(stage)
                except Failure as why:
                    stage.miss("ensure", str(why))
            self.tried += 1
            stage.make(planned, ACTIONS[lane])

"""The schedulers of a run, which inject faults of nodes, links and clients at an even rate."""

import time
from collections.abc import Callable

from ...deploy.cluster.failure import Failure
from ...deploy.faults.damage_action import damage_a_replica
from ...deploy.faults.engine import Action, Scheduler
from ...deploy.faults.link_actions import LINK_ACTIONS, heal_links
from ...deploy.faults.node_actions import NODE_ACTIONS, ensure_all_run
from ...deploy.faults.schedule import CLIENTS, LINKS, NODES, Fault, chaos_schedule
from .client_actions import CLIENT_ACTIONS
from .context import ChaosContext
from .plan_settings import RunSettings
from .security_actions import SECURITY_ACTIONS

ACTIONS: dict[str, dict[str, Action]] = {
    NODES: {**NODE_ACTIONS, "damage": damage_a_replica},
    LINKS: LINK_ACTIONS,
    CLIENTS: {**CLIENT_ACTIONS, **SECURITY_ACTIONS},
}
END_TIMEOUT_S = 120.0


def start_schedulers(context: ChaosContext, settings: RunSettings) -> list[Scheduler]:
    """Start one scheduler each for the faults of nodes, links and clients, and return them.

    Each scheduler injects faults at the same interval, and their first faults are evenly shifted.
    """
    interval_s = len(ACTIONS) * 60 / settings.faults_per_minute
    found: list[Scheduler] = []
    for number, (target, actions) in enumerate(ACTIONS.items(), 1):
        faults = chaos_schedule(settings.seed, target, nodes=settings.nodes, kinds=settings.kinds)
        first_s = time.monotonic() + interval_s * number / len(ACTIONS)
        pace = _pace(context, interval_s, first_s, has_nodes=target == NODES)
        found.append(Scheduler(context, target, faults, actions, pace))
        found[-1].start()
    return found


def stop_schedulers(context: ChaosContext, schedulers: list[Scheduler]) -> None:
    """Wait until the current faults have ended, then heal proxies and links and start all nodes.

    Raises Failure if a scheduler does not end.
    """
    context.stopping.set()
    deadline = time.monotonic() + END_TIMEOUT_S
    for scheduler in schedulers:
        scheduler.join(max(0.1, deadline - time.monotonic()))
        if scheduler.is_alive():
            raise Failure(f"The faults of {scheduler.name} do not end.")
    context.proxies.heal()
    ensure_all_run(context)
    heal_links(context)


def _pace(
    context: ChaosContext, interval_s: float, due: float, *, has_nodes: bool
) -> Callable[[Fault], None]:
    def wait_for_turn(fault: Fault) -> None:
        nonlocal due
        context.sleep(due - time.monotonic())
        due = max(due + interval_s, time.monotonic())
        if has_nodes and not context.stopping.is_set():
            try:
                ensure_all_run(context)
            except context.tolerated as why:
                context.miss("ensure", str(why))

    return wait_for_turn

"""Run the scenario of a switch with or without the bug, and return the findings.

`played = play(SWITCHES["no-guard"], is_on=True)`

By default the scenario runs in the simulation, for a second or two, with the same result each time.
It can also run on real processes. Scenarios of Raft try seed after seed of a separate simulation.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oncelog.coordinator.raft.outcomes import CorruptJournal
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.judge.history.recorder import Recorder

from ..simulation.invariants import Invariants
from ..simulation.outcome import NAMED, Shape
from ..simulation.raft_simulation import Violation
from ..simulation.run import run_seed
from ..simulation.virtual_cluster import VirtualCluster
from . import (
    scenarios_groups,
    scenarios_logs,
    scenarios_migration,
    scenarios_raft,
    scenarios_transactions,
)
from .broken_node import nodes_with
from .catalogue import Switch
from .chance import RANDOM_APART
from .clusters import ProcessCluster, ScenarioCluster, SimulatedCluster
from .context import Context, Scenario

CLUSTER_SCENARIOS: dict[str, Scenario] = {
    **scenarios_groups.SCENARIOS,
    **scenarios_logs.SCENARIOS,
    **scenarios_migration.SCENARIOS,
    **scenarios_transactions.SCENARIOS,
}
RAFT_SCENARIOS: dict[str, Callable[[int], object]] = dict(scenarios_raft.SCENARIOS)
# Random simulation, with the seeds' own shapes or with one for a class of faults.
RANDOM_SCENARIOS: dict[str, Shape | None] = {"random": None} | {
    f"random-{name}": shape for name, shape in NAMED.items()
}
RAFT_SEEDS_MAX = 60
RANDOM_SEEDS_MAX = 200
RAFT = "invariant of Raft"
VIRTUAL_S_MAX = 600.0
SETTLING_S = 1.0  # on a new cluster every voter has to be heard before one may be missing


@dataclass(frozen=True, slots=True)
class Played:
    """The result of one run of a scenario.

    `found` has a sentence for each anomaly. `seed` is the seed of a simulation, otherwise None.
    """

    found: dict[str, str]
    seed: int | None
    seconds: float

    def caught_by(self, switch: Switch) -> list[str]:
        """Return the findings that the switch expects, an empty list for an undetected bug."""
        if switch.scenario in RAFT_SCENARIOS:
            told = self.found.get(RAFT, "")
            return [RAFT] if any(word in told for word in switch.found_as) else []
        return sorted(switch.found_as & self.found.keys())


def play(switch: Switch, *, is_on: bool, on_processes: bool = False, seed: int = 1) -> Played:
    """Run the scenario of a switch once, with the bug if `is_on`.

    A random scenario tries many seeds with the bug, and one seed without the bug.
    """
    started = time.monotonic()
    found_at: int | None = seed
    if switch.scenario in RAFT_SCENARIOS:
        found, found_at = _play_raft(switch, is_on, seed)
    elif switch.scenario in RANDOM_SCENARIOS:
        found, found_at = _play_at_random(switch, is_on, seed)
    elif on_processes:
        found, found_at = _play_on_processes(switch, is_on), None
    else:
        found = _play_in_simulation(switch, is_on, seed)
    return Played(found, found_at, time.monotonic() - started)


def _play_raft(switch: Switch, is_on: bool, seed: int) -> tuple[dict[str, str], int]:
    run = RAFT_SCENARIOS[switch.scenario]
    first = (seed - 1) * RAFT_SEEDS_MAX
    for number in range(first, first + RAFT_SEEDS_MAX) if is_on else (seed,):
        try:
            with switch.install() if is_on else contextlib.nullcontext():
                run(number)
        except (Violation, CorruptJournal) as violation:
            return {RAFT: str(violation)}, number
    return {}, seed


def _play_at_random(switch: Switch, is_on: bool, seed: int) -> tuple[dict[str, str], int]:
    shape = RANDOM_SCENARIOS[switch.scenario]
    first = seed * RANDOM_APART
    for number in range(first, first + RANDOM_SEEDS_MAX) if is_on else (seed,):
        outcome = run_seed(number, shape=shape, install=switch.install if is_on else None)
        found = {words.partition(": ")[0]: words for words in outcome.violations}
        if switch.found_as & found.keys() or not is_on:
            return found, number
    return {}, seed


def _play_in_simulation(switch: Switch, is_on: bool, seed: int) -> dict[str, str]:
    scenario = CLUSTER_SCENARIOS[switch.scenario]
    bug = switch.install() if is_on else contextlib.nullcontext()
    recorder = new_recorder()
    with VirtualCluster.made(seed, Shape(transaction_shards=4)) as cluster, bug:
        invariants = Invariants(cluster, recorder)
        with invariants.watching():
            cluster.start()
            found = cluster.finish(
                _play(scenario, SimulatedCluster(cluster), recorder), VIRTUAL_S_MAX
            )
        found |= dict(invariants.found)
        for node in cluster.nodes.values():
            if node.ends:
                found["node ended"] = node.ends[0]
        if failures := cluster.failures():
            found["unhandled"] = failures[0]
    return found


def new_recorder() -> Recorder:
    """Return a recorder in memory, with a clock that a simulation can replace."""
    return Recorder.in_memory(clock_ns=lambda: time.monotonic_ns())


def _play_on_processes(switch: Switch, is_on: bool) -> dict[str, str]:
    scenario = CLUSTER_SCENARIOS[switch.scenario]
    with tempfile.TemporaryDirectory(prefix="oncelog-switch-") as directory:
        cluster = Cluster(3, data=Path(directory) / "data")
        with nodes_with(switch.name if is_on else None):
            try:
                cluster.up()
                return asyncio.run(_play(scenario, ProcessCluster(cluster), new_recorder()))
            finally:
                cluster.down(purge=True)


async def _play(scenario: Scenario, cluster: ScenarioCluster, recorder: Recorder) -> dict[str, str]:
    context = Context(cluster, recorder)
    try:
        await asyncio.sleep(SETTLING_S)
        await scenario(context)
        verdict = await context.verdict()
    finally:
        await context.close()
    return {f.name: f.cases[0].sentence if f.cases else "" for f in verdict.violations}

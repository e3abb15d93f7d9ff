"""Create, use, kill -9, recover and use a large cluster, and measure each step.

First all large resources are created and used on one cluster. One node is killed and restarted, and
then all nodes are killed together. All resources are used again. Then follow the measurements of
figures.py, each on its own cluster. --factor 0.01 runs everything at a small size.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from unittest import mock

from oncelog import Cluster
from oncelog.deploy.cluster import local_cluster
from oncelog.deploy.cluster.terminal import show

from .burdens import (
    Burden,
    Connections,
    Large,
    Partitions,
    Producers,
    Scale,
    TransactionalIds,
)
from .figures import create_more, idle, restart_full, restart_wide
from .group_burdens import Groups, Offsets
from .run import COLUMNS, print_findings, row
from .stage import Outcome, Skipped, Stage, judge

BURDENS: dict[str, type[Burden]] = {
    "partitions": Partitions,
    "transactional-ids": TransactionalIds,
    "producers": Producers,
    "groups": Groups,
    "offsets": Offsets,
    "large": Large,
    "connections": Connections,
}
FIGURES: dict[str, Callable[[Stage, float], None]] = {
    "restart-full": restart_full,
    "restart-wide": restart_wide,
    "create-more": create_more,
    "idle": idle,
}
CONFIG = {"max.connections": 10_000, "max.connections.per.ip": 10_000}
READY_TIMEOUT_S = 600.0  # a slow start is a figure here, not a failure


class Soak:
    """A soak test that runs its steps and stores the outcome of each."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.outcomes: list[Outcome] = []

    def carry(self, names: Sequence[str]) -> None:
        """Create and use these resources on one cluster, kill nodes, and use them again."""
        burdens = {name: BURDENS[name](self.scale) for name in names}
        with Cluster(3, config=CONFIG) as cluster:
            for name, burden in burdens.items():
                self._step(f"make {name}", cluster, burden.make)
                self._step(f"use {name}", cluster, burden.use)
            self._step("one dies", cluster, lambda stage: self._kill(stage, [2]))
            self._step("all die", cluster, lambda stage: self._kill(stage, cluster.node_ids))
            for name, burden in burdens.items():
                self._step(f"use {name} again", cluster, burden.use)
            for burden in burdens.values():
                if isinstance(burden, Connections):
                    burden.close()

    def figure(self, name: str) -> None:
        """Run one measurement with a limit on a cluster of its own."""
        with Cluster(3) as cluster:
            stage = Stage(name, cluster, is_short=False)
            try:
                FIGURES[name](stage, self.scale.factor)
            except Skipped as words:
                stage.outcome.skipped = str(words)
            except Exception as problem:
                stage.outcome.problems.append(f"{type(problem).__name__}: {problem}")
            self._keep(stage.outcome)

    def _step(self, name: str, cluster: Cluster, act: Callable[[Stage], str]) -> None:
        stage = Stage(name, cluster, is_short=True)
        with stage.watched(name):
            try:
                stage.outcome.done = act(stage)
            except Skipped as words:
                stage.outcome.skipped = str(words)
        self._keep(stage.outcome)

    def _kill(self, stage: Stage, node_ids: Sequence[int]) -> str:
        assert stage.watch is not None
        for node_id in node_ids:
            stage.watch.kill(node_id)
        stage.watch.start(*node_ids)
        found = stage.cluster.ask(lambda admin: admin.describe_topics())
        topics: dict[str, list[int]] = {}
        for p in found:
            topics.setdefault(p.topic, []).append(len(p.replicas))
        for topic, replicas in topics.items():
            stage.wait_in_sync(topic, len(replicas), replicas[0])
        return f"kill -9 of {', '.join(map(str, node_ids))}; in sync again"

    def _keep(self, outcome: Outcome) -> None:
        self.outcomes.append(judge(outcome))
        line = row(outcome) | {"problems": outcome.problems[:3]}
        print(json.dumps(line, default=str), file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak test, and return 0 if every step has succeeded, else 1."""
    known = [*BURDENS, *FIGURES]
    parser = argparse.ArgumentParser(prog="python -m tests.size.soak", description=__doc__)
    parser.add_argument("--only", metavar="NAME,...", help=f"run only these of {', '.join(known)}")
    parser.add_argument("--factor", type=float, default=1.0, help="factor of all sizes")
    parser.add_argument("--json", metavar="F", type=Path, help="write all measurements to F")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such step: {', '.join(unknown)}; there are {', '.join(known)}")
    soak = Soak(Scale(options.factor))
    with mock.patch.object(local_cluster, "READY_TIMEOUT_S", READY_TIMEOUT_S):
        if burdens := [name for name in names if name in BURDENS]:
            soak.carry(burdens)
        for name in names:
            if name in FIGURES:
                soak.figure(name)
    show([row(outcome) for outcome in soak.outcomes], "table", columns=COLUMNS)
    for outcome in soak.outcomes:
        print_findings(outcome)
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in soak.outcomes], indent=1))
    return 0 if all(outcome.is_good for outcome in soak.outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

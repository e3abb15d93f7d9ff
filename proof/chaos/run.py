"""One run of chaos, from an empty directory to a verdict.

    RUN/run.json      seed, settings, versions, how to replay the run, and the results
    RUN/history/      operations of clients with results, faults, the contents of the disks
    RUN/report.json   the data of `oncelog ui RUN`
    RUN/report.html   the same data as a page
    RUN/nodes/        the logs of the nodes
    RUN/workers/      the logs of the clients' processes
    RUN/cluster/      the nodes' data, during the run, and afterwards if something is wrong

Only the sockets between brokers are outside of this directory, since their path must be short, and
are removed with the cluster. No process is left, even after `kill -9` (guardian.py).
"""

import contextlib
import json
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...deploy.cluster.advice import shell_command
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.private import make_private_directory
from ...deploy.faults.client_proxies import ClientProxies
from ...deploy.faults.faulty_cluster import FaultyCluster
from ...deploy.inspect.loop_stalls import stalls_in_log
from ...version import __version__
from ..judge.history.recorder import Recorder
from . import security_actions
from .client_processes import ClientProcesses
from .context import ChaosContext
from .epilogue import probe_all, read_the_end, wait_for_rest
from .load.order import WorkerOrder
from .plan_settings import RunSettings
from .remains import dump_remains
from .schedulers import start_schedulers, stop_schedulers

RUN_FILE = "run.json"
CONFIG: dict[str, str] = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "200",
    "log.segment.bytes": "1048576",
    "log.retention.check.interval.ms": "10000",
    "offsets.topic.segment.bytes": "1048576",
    "auto.create.topics.enable": "false",
}
SCAN_INTERVAL_MS = 1_000
SEGMENTS_OF_A_RUN, ROLL_MS_MIN = 60, 5_000  # short segments, whose files are tested
NOT_MADE = "not made, since they need root: lost packets between nodes, power cuts"
CALM_S = 2.0  # the load continues for so long after the healing
WATCH_S = 0.25


@dataclass(slots=True)
class RunOutcome:
    """The result of a run, before the judge has checked its history."""

    faults: dict[str, int] = field(default_factory=dict[str, int])
    tried: int = 0
    missed: list[str] = field(default_factory=list[str])
    broken: list[str] = field(default_factory=list[str])
    bank: str = ""
    is_balanced: bool = True
    clients: int = 0
    client_errors: dict[str, int] = field(default_factory=dict[str, int])
    load_s: float = 0.0
    rest_s: float = 0.0
    batches: int = 0

    @property
    def has_hit(self) -> bool:
        """Return whether most faults of the run had a visible effect."""
        return sum(self.faults.values()) * 2 > self.tried

    @property
    def is_clean(self) -> bool:
        """Return whether the run itself found no violation. The judge may still find some."""
        return not self.broken and self.is_balanced


class ChaosRun:
    """One run of chaos in a directory."""

    def __init__(
        self, out: Path, settings: RunSettings, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.out, self.settings, self._say = out.resolve(), settings, say
        self.outcome = RunOutcome()
        self._connection = ""  # of the clients of the load

    def go(self) -> RunOutcome:
        """Run the load under faults, and return the outcome.

        Raises Failure if the run could not be done, for example because `out` is not empty.
        """
        if self.out.exists() and any(self.out.iterdir()):
            raise Failure(f"{self.out} is not empty. Name another directory with --out.")
        make_private_directory(self.out)
        self._write_about()
        settings = self.settings
        roll_ms = max(ROLL_MS_MIN, int(settings.seconds * 1000 / SEGMENTS_OF_A_RUN))
        cluster = FaultyCluster(
            nodes=settings.nodes,
            data=self.out / "cluster",
            seed=settings.seed,
            config={
                **CONFIG,
                **(security_actions.CONFIG if settings.is_secured else {}),
                "log.roll.ms": roll_ms,
            },
            secure=settings.is_secured,
        )
        workers, recorder = ClientProcesses(self.out), Recorder.open(self.out)
        with contextlib.ExitStack() as last:  # each step runs, even if others raise
            last.callback(self._end, cluster)
            last.callback(recorder.close)
            last.callback(workers.close)
            last.enter_context(cluster)
            self._say(f"{settings.nodes} nodes serve at {cluster.bootstrap}")
            self._say(NOT_MADE)
            self._make_topics(cluster)
            self._connection = cluster.connection
            if settings.is_secured:
                self._connection = security_actions.admit_user(cluster)
            ports = [entry.port for entry in cluster.file.nodes]
            proxies = ClientProxies(ports, is_encrypted=settings.is_secured)
            last.callback(proxies.close)
            self._break_it(cluster, workers, proxies, recorder)
            self._finish(cluster, recorder)
            for node_id in cluster.down():
                self.outcome.broken.append(f"node {node_id} did not stop and had to be killed")
            for node_id in cluster.node_ids:
                for stall in stalls_in_log(cluster.node(node_id).log):
                    self.outcome.broken.append(f"node {node_id}: {stall}")
            self._say("all nodes are down; reading their disks")
            self.outcome.batches = dump_remains(recorder, cluster.data)
        self.outcome.clients = workers.clients
        self.outcome.client_errors = dict(workers.errors.most_common())
        if workers.stuck:
            self.outcome.client_errors["(a library that hung)"] = workers.stuck
        self._write_about(self.outcome)
        return self.outcome

    def remove_data(self) -> None:
        """Remove the nodes' data once it is no longer needed."""
        shutil.rmtree(self.out / "cluster", ignore_errors=True)

    def _make_topics(self, cluster: FaultyCluster) -> None:
        load = self.settings.load
        for topic, partitions in load.topics.items():
            cluster.ask(
                lambda admin, topic=topic, partitions=partitions: admin.create_topic(
                    topic, partitions=partitions, replication_factor=load.replication_factor
                )
            )
        for topic in load.topics:
            cluster.wait_for_isr(topic, load.replication_factor)

    def _break_it(
        self,
        cluster: FaultyCluster,
        workers: ClientProcesses,
        proxies: ClientProxies,
        recorder: Recorder,
    ) -> None:
        orders = self._orders(proxies)
        for name, order in orders.items():
            workers.add(name, order)
        ids = [f"append-{o.number}-0" for o in orders.values()]
        context = ChaosContext(
            cluster,
            workers,
            proxies,
            recorder,
            self.settings.load,
            seed=self.settings.seed,
            transactional_ids=ids,
            extra_order=replace(self._order(), number=900, workloads=("job", "readers")),
            connection=self._connection,
        )
        started = time.monotonic()
        schedulers = start_schedulers(context, self.settings)
        try:
            last_reported = started
            while (now := time.monotonic()) < started + self.settings.seconds:
                context.stopping.wait(WATCH_S)
                if context.problem is not None or workers.failed is not None:
                    break
                if now - last_reported > 10:
                    last_reported = now
                    self._say(f"{now - started:.0f} s, {sum(context.hits.values())} faults")
        finally:
            stop_schedulers(context, schedulers)
        if (problem := context.problem or workers.failed) is not None:
            raise problem
        self._say("all faults are undone; the load continues for a moment")
        time.sleep(CALM_S)
        workers.stop()
        self.outcome.load_s = round(time.monotonic() - started, 1)
        self.outcome.faults = dict(sorted(context.hits.items()))
        self.outcome.tried, self.outcome.missed = context.tried, context.misses
        self.outcome.broken = [*context.broken, *workers.broken]

    def _order(self) -> WorkerOrder:
        """Return the settings for client processes, which are the same for all of them."""
        return WorkerOrder(
            run=str(self.out),
            connection=self._connection,
            seed=f"{self.settings.seed}",
            settings=self.settings.load,
            transactional_clients=self.settings.transactional_clients,
        )

    def _orders(self, proxies: ClientProxies) -> dict[str, WorkerOrder]:
        settings, order, orders = self.settings, self._order(), dict[str, WorkerOrder]()
        for number in range(1, settings.workers + 1):
            ports = proxies.ports if number == settings.workers else {}
            orders[f"oncelog-{number}"] = replace(order, number=number, proxies=ports)
        for number in range(1, settings.confluent_workers + 1):
            orders[f"confluent-{number}"] = replace(
                order, number=100 + number, library="confluent", workloads=("append",)
            )
        return orders

    def _finish(self, cluster: FaultyCluster, recorder: Recorder) -> None:
        began = time.monotonic()
        missing = wait_for_rest(cluster)
        self.outcome.rest_s = round(time.monotonic() - began, 2)
        word = (
            "the cluster is at rest"
            if missing is None
            else f"the cluster does not come to rest: {missing}"
        )
        self._say(f"{word} after {self.outcome.rest_s} s; reading everything once more")
        if missing is not None:
            self.outcome.broken.append(f"not at rest after the healing: {missing}")
        probe_all(cluster, recorder, self.settings.load)
        bank, is_whole = read_the_end(cluster, recorder, self.settings.load)
        self.outcome.bank, self.outcome.is_balanced = bank.words(), bank.is_balanced
        if not is_whole:
            self.outcome.broken.append("the last reading did not come to the end of all partitions")

    def _end(self, cluster: FaultyCluster) -> None:
        """Stop all nodes, remove their sockets, and keep copies of their logs."""
        try:
            if any(status.pid for status in cluster.status()):
                cluster.down()
        except Failure:
            cluster.down()
        words = self.out / "nodes"
        words.mkdir(exist_ok=True)
        for node_id in cluster.node_ids:
            log = cluster.node(node_id).log
            if log.exists():
                shutil.copyfile(log, words / f"node-{node_id}.log")

    def _write_about(self, outcome: RunOutcome | None = None) -> None:
        about: dict[str, Any] = {
            "format": 1,
            "seed": self.settings.seed,
            "settings": asdict(self.settings),
            "scan_interval_ms": SCAN_INTERVAL_MS,
            "keeps_all": True,  # no topic of the run deletes records by age
            "versions": {
                "oncelog": __version__,
                "python": sys.version.split()[0],
                "system": platform.platform(),
            },
            "replay": shell_command("chaos replay", self.out),
        }
        if outcome is not None:
            about["outcome"] = asdict(outcome)
        (self.out / RUN_FILE).write_text(json.dumps(about, indent=1), encoding="utf-8")


def settings_of(run: Path) -> RunSettings:
    """Return the settings that a run's directory contains, or raise Failure without a run."""
    try:
        about = json.loads((run / RUN_FILE).read_text(encoding="utf-8"))
        return RunSettings.from_json(about["settings"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise Failure(f"{run} is not the directory of a chaos run ({problem}).") from None

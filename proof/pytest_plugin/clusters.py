"""The clusters of one pytest process, shared ones by size, and others that end with a test.

All clusters end with the process. They are in one temporary directory. The guardian of this process
(guardian.py) removes the directory with its clusters, even after `kill -9` or a second Ctrl-C.
"""

import contextlib
import itertools
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ...deploy.cluster.ends.guardian import guardian
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster

LOG_LINES = 25
SEED_MAX = 10**6


class Clusters:
    """The clusters of this process. `seed` is the default seed of faults."""

    def __init__(self, *, is_kept: bool = False, is_secured: bool = False) -> None:
        self.is_kept, self.is_secured = is_kept, is_secured
        self.seed = secrets.randbelow(SEED_MAX)
        name = f"oncelog-pytest-{secrets.token_hex(4)}"
        self.directory = Path(tempfile.gettempdir()).resolve() / name
        self._shared: dict[tuple[int, str | None], Cluster] = {}
        self._living: list[Cluster] = []
        self._names = itertools.count(1)
        self.numbers = itertools.count(1)  # of the tests that use a shared cluster

    def shared(self, nodes: int, clock: str | None = None) -> Cluster:
        """Return the shared cluster of this size and clock, and start it if it does not run."""
        kind = nodes, clock
        if kind not in self._shared:
            self._shared[kind] = self.start(nodes, clock=clock)
        return self._shared[kind]

    def start(self, nodes: int, **settings: Any) -> Cluster:
        """Start a new cluster. After a failure, remove it and raise Failure with the node's log."""
        if settings.pop("data", None) is not None:
            raise Failure("Clusters of tests have their own directory. Do not give `data`.")
        if not self.is_kept:
            guardian.keep("directory", self.directory)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        data = self.directory / f"cluster-{next(self._names)}"
        cluster = Cluster(nodes, data=data, **{"secure": self.is_secured, **settings})
        cluster.is_guarded = True
        cluster.up()
        self._living.append(cluster)
        return cluster

    def end(self, cluster: Cluster) -> None:
        """End the nodes of a cluster. Unless `is_kept`, its directory is removed, too."""
        if cluster not in self._living:
            return
        try:
            cluster.down(purge=not self.is_kept)
        finally:
            self._living.remove(cluster)
            if not self.is_kept:
                shutil.rmtree(cluster.data, ignore_errors=True)

    def close(self) -> None:
        """End all clusters."""
        self._shared.clear()
        for cluster in list(self._living):
            self.end(cluster)
        if not self.is_kept:
            shutil.rmtree(self.directory, ignore_errors=True)
        guardian.forget("directory", self.directory)

    def log_sections(self) -> list[tuple[str, str]]:
        """Return (heading, last lines of the log) of each running node, for a report."""
        return [section for cluster in self._living for section in _log_sections(cluster)]


def _log_sections(cluster: Cluster) -> list[tuple[str, str]]:
    with contextlib.suppress(Failure):
        return [
            (f"oncelog node {i:d}", cluster.node(i).log_tail(LOG_LINES)) for i in cluster.node_ids
        ]
    return []

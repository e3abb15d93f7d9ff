"""Search for this user's nodes, clusters and orphaned child processes, to end them.

No list of clusters is needed. The command line of a node's process names the node's file in the
directory of its cluster. A child process has the name of its run in its environment (guardian.py).
A cluster without a running node is found only in the temporary directory.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ....node.linux import shares_our_namespaces
from .. import layout
from ..failure import Failure, told_by_system
from ..local_cluster import Cluster
from ..node_process import node_file_of
from ..terminal import say
from .guardian import PURGE, RUN

GONE_TIMEOUT_S, BUSY_TIMEOUT_S = 10.0, 30.0
POLL_S = 0.01
ORDER = ("run", "cluster", "directory")  # users of a cluster end before it


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A cluster of this user. `processes` are the live processes by node."""

    data: Path
    processes: dict[int, psutil.Process] = field(default_factory=dict[int, psutil.Process])

    @property
    def node_ids(self) -> list[int]:
        """Return the ids in the cluster's file, or no ids if it is missing or invalid."""
        with contextlib.suppress(Failure):
            if (file := layout.read(self.data)) is not None:
                return file.node_ids
        return []

    @property
    def row(self) -> dict[str, object]:
        """Return the row of `oncelog ps --all`."""
        return {
            "nodes": len(self.node_ids) or None,
            "running": len(self.processes),
            "directory": self.data,
            "pids": {node: process.pid for node, process in self.processes.items()},
        }


def clusters_of_user() -> list[FoundCluster]:
    """Return the clusters with running nodes, and those left in the temporary directory."""
    found: dict[Path, FoundCluster] = {}
    for file, process in _nodes():
        data, node_id = file.parent.parent, file.parent.name.removeprefix("node-")
        if node_id.isdigit():  # else it was laid out by hand, for a service manager
            found.setdefault(data, FoundCluster(data)).processes[int(node_id)] = process
    for file in Path(tempfile.gettempdir()).resolve().glob(f"oncelog-*/{layout.CLUSTER_FILE}"):
        with contextlib.suppress(Failure, OSError):
            if _is_plain_and_ours(file) and layout.read(file.parent) is not None:
                found.setdefault(file.parent, FoundCluster(file.parent))
    return [found[data] for data in sorted(found)]


def _is_plain_and_ours(file: Path) -> bool:
    """Return whether a path is a regular file of this user in a directory of this user.

    A read from a named pipe would never end.
    """
    folder, status = file.parent.lstat(), file.lstat()
    is_plain = stat.S_ISDIR(folder.st_mode) and stat.S_ISREG(status.st_mode)
    return is_plain and folder.st_uid == status.st_uid == os.getuid()


def end_found(found: FoundCluster, *, is_purged: bool) -> bool:
    """End a cluster's nodes as `down` does, and remove its data if `is_purged`.

    Returns whether the directory is gone. Raises Failure, and ends no node, when the cluster's file
    cannot be read.
    """
    if layout.read(found.data) is not None:
        Cluster.open(found.data).down(purge=is_purged)
    else:
        asked = list(found.processes.values())
        for process in asked:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        psutil.wait_procs(asked, GONE_TIMEOUT_S)
        end_cluster(found.data, is_purged=is_purged)
    return not found.data.exists()


def end_all(left: Iterable[tuple[str, str, str]]) -> None:
    """Kill and remove the items that a process left, each as (kind, name, how) of `Guardian.keep`.

    A cluster that another `up` has started again is not ended, and its temporary directory stays.
    """
    spared: set[str] = set()
    for kind, name, how in sorted(left, key=lambda one: ORDER.index(one[0])):
        with contextlib.suppress(Failure, OSError):  # the others are ended nevertheless
            if kind == "run":
                end_run(name)
            elif kind == "cluster":
                what, _, owner = how.partition(" ")
                if not end_cluster(Path(name), is_purged=what == PURGE, owner=owner):
                    spared.add(name)
            elif name not in spared:
                shutil.rmtree(name, ignore_errors=True)


def end_cluster(data: Path, *, is_purged: bool, owner: str | None = None) -> bool:
    """Send SIGKILL to all nodes of a directory, and remove its data if `is_purged`.

    Parts of the directory may be missing. Returns False, and ends no node, if cluster.json names
    another owner than `owner`, because another `up` has started the cluster again. Raises Failure
    when nodes do not end. If the directory cannot be used, raises Failure or OSError after the
    nodes were ended, and the data stays. The call waits for the directory's lock, because a child
    of a killed `up` holds the lock until the child has become a node.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        if not data.is_dir():
            _end_nodes_in(data)
            return True
        try:
            with layout.locked(data):
                file = layout.read(data)
                if file is not None and owner not in (None, file.owner):
                    return False
                _end_nodes_in(data)
                if file is not None:
                    layout.remove_peer_directory(Path(file.peer_directory))
                if is_purged:
                    layout.remove(data, file)
                return True
        except layout.DirectoryBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        except (Failure, OSError):
            _end_nodes_in(data)
            raise


def _end_nodes_in(data: Path) -> None:
    _end_processes(lambda: (p for file, p in _nodes() if file.parent.parent == data))


def end_run(run: str) -> None:
    """Send SIGKILL to all child processes of a run, and to their descendants.

    Raises Failure if a process does not end.
    """
    _end_processes(lambda: (process for found, process in _children() if found == run))


def end_orphans() -> int:
    """Kill the child processes that an ended starter has left. Return their number."""
    runs = {run for run, child in _children() if _is_orphan(run, child)}
    orphans = [process for run, process in _children() if run in runs]
    for run in runs:
        end_run(run)
    return len(orphans)


def end_all_of_user(*, is_purged: bool) -> int:
    """Stop all clusters of the user, remove their data if `is_purged`, and print a line for each.

    The child processes that ended commands have left are killed, too. Returns 1 if a cluster could
    not be stopped, else 0.
    """
    clusters, problems = clusters_of_user(), 0
    for found in clusters:
        try:
            is_removed = end_found(found, is_purged=is_purged)
            begin = "ended" if found.processes else "did not run"
            say(f"{begin}: {found.data}{', data removed' if is_removed else ''}")
        except (Failure, OSError) as problem:
            problems += 1
            told = told_by_system(problem) if isinstance(problem, OSError) else None
            say(f"not ended: {found.data}: {told or problem}")
    if orphans := end_orphans():
        say(f"ended: {orphans} processes that killed commands have left")
    if not clusters and not orphans:
        say("this user has no cluster, and no process of a killed command")
    return 1 if problems else 0


def _is_orphan(run: str, child: psutil.Process) -> bool:
    """Return whether the process that started the run has ended.

    The run's name has the pid of that process. A process with this pid that began after `child` is
    another one.
    """
    owner = run.partition("-")[0]
    if not owner.isdigit():
        return False
    try:
        begun_s = psutil.Process(int(owner)).create_time()
    except psutil.NoSuchProcess:
        return True
    with contextlib.suppress(psutil.NoSuchProcess):  # the child has ended meanwhile
        return begun_s > child.create_time()
    return False


def _end_processes(find: Callable[[], Iterator[psutil.Process]]) -> None:
    """Kill the processes that `find` yields, again and again until it yields none.

    A process may start another one before it is killed. Raises Failure at a timeout.
    """
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while found := list(find()):
        if time.monotonic() > deadline:
            raise Failure(f"Processes {[process.pid for process in found]} do not end.")
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, 0.1)


def _nodes() -> Iterator[tuple[Path, psutil.Process]]:
    """Yield the server.properties and the process of each running node of this user."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            file = node_file_of(process.cmdline())
            if file is not None and process.uids().real == os.getuid() and _counts(process):
                yield Path(process.cwd()) / file, process


def _children() -> Iterator[tuple[str, psutil.Process]]:
    """Yield each live child process of a run, and its descendants, with the name of the run."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if (run := process.environ().get(RUN)) and _counts(process):
                yield run, process


def _counts(process: psutil.Process) -> bool:
    """Return whether a process is alive and in the namespaces of this process.

    In another container, paths and pids mean other files and processes.
    """
    return process.status() != psutil.STATUS_ZOMBIE and shares_our_namespaces(process.pid)

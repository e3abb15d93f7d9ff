"""The options --all of `oncelog ps` and `oncelog down`, for all clusters of a user."""

from ..deploy.cluster.failure import Failure, told_by_system
from ..deploy.cluster.terminal import say, show
from .common import headings

CLUSTER_COLUMNS = headings("nodes", "running", "directory")


def show_all(output: str) -> None:
    """Print a row for each cluster: its nodes, the number of running nodes, its directory."""
    from ..deploy.cluster.ends.leftovers import clusters_of_user

    rows = [
        {
            "nodes": len(found.node_ids) or None,
            "running": len(found.processes),
            "directory": found.data,
            "pids": {node: process.pid for node, process in found.processes.items()},
        }
        for found in clusters_of_user()
    ]
    show(rows, output, columns=CLUSTER_COLUMNS)


def end_all_of_user(purge: bool) -> int:
    """Stop all clusters of the user. Return 1 if a cluster could not be stopped, else 0."""
    from ..deploy.cluster.ends.leftovers import clusters_of_user, end_found, end_orphans

    clusters, problems = clusters_of_user(), 0
    for found in clusters:
        try:
            is_removed = end_found(found, is_purged=purge)
            begin = "ended" if found.processes else "did not run"
            say(f"{begin}: {found.data}{', data removed' if is_removed else ''}")
        except (Failure, OSError) as problem:
            problems += 1
            told = told_by_system(problem) if isinstance(problem, OSError) else None
            say(f"not ended: {found.data}: {told or problem}")
    if orphans := end_orphans():
        say(f"ended: {orphans} processes of killed commands")
    if not clusters and not orphans:
        say("nothing of this user runs")
    return 1 if problems else 0

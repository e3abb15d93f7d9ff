"""`oncelog events` prints the events of a cluster, one on a line."""

import json
import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.terminal import say, tell
from ..common import QUERY, Query
from .page import watched_cluster
from .until_signal import run_until_signal

if TYPE_CHECKING:
    from ...ui.facts import ClusterEvent
    from ...ui.running import WatchedCluster

SHOWN_S = 3600.0


def register(app: App) -> None:
    """Add the command of this file to `app`."""
    app.command(events)


def events(
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], help="Also print new events.", negative=())
    ] = False,
    seconds: Annotated[
        float | None, Parameter(help="Print new events for this time in seconds.")
    ] = None,
    query: Query = QUERY,
) -> int:
    """Print the elections, ISR changes, fences, aborts and rebalances of the last hour.

    Events are read from the logs of the nodes. For a cluster named by its address, such as a Kafka
    on another machine, the command always follows. It compares the state of the cluster with the
    previous state every few seconds.
    """
    if seconds is not None and not seconds > 0:
        raise Failure("--seconds has to be more than 0.", exit_code=2)
    watched = watched_cluster(query)
    if watched.own is None or follow or seconds is not None:
        run_until_signal(_follow(query, watched, seconds))
        return 0
    from ...ui.logged import cluster_event
    from ...ui.running import event_logs

    for event in map(cluster_event, event_logs(watched.own).new()):
        if _is_recent(event):
            _print(event, query.format)
    return 0


async def _follow(query: Query, watched: "WatchedCluster", seconds: float | None) -> None:
    from ...ui.running import observing

    observer = observing(watched, has_doctor=False)
    observer.admin.view.on_silence = say
    last: ClusterEvent | None = None
    end_s = None if seconds is None else time.monotonic() + seconds
    try:
        if query.format != "json":
            how = "checks every 2 s" if watched.own is None else "reads the logs of the nodes"
            say(f"{how}; Ctrl-C ends it")
        while end_s is None or time.monotonic() < end_s:
            left_s = 3600.0 if end_s is None else end_s - time.monotonic()
            await observer.changed(max(0.0, left_s))
            for event in after(observer.facts.events, last):
                if _is_recent(event):
                    _print(event, query.format)
                last = event
    finally:
        await observer.close()


def after(
    known: "tuple[ClusterEvent, ...]", last: "ClusterEvent | None"
) -> "tuple[ClusterEvent, ...]":
    """Return the known events after the event `last`, or all if `last` is not among them.

    Events are compared by identity, because two events may be equal.
    """
    for at in range(len(known) - 1, -1, -1):
        if known[at] is last:
            return known[at + 1 :]
    return known


def _is_recent(event: "ClusterEvent") -> bool:
    return event.at_ms >= (time.time() - SHOWN_S) * 1000


def _print(event: "ClusterEvent", output: str) -> None:
    if output == "json":
        fields = {"at_ms": event.at_ms, "kind": event.kind, "subject": event.subject}
        logged = {"node": event.node, "line": event.line or None}
        print(json.dumps({**fields, "sentence": event.sentence, **logged}), flush=True)
        return
    at = time.strftime("%H:%M:%S", time.localtime(event.at_ms / 1000))
    tell(f"{at}  {event.kind:<11}  {event.sentence}")

"""`oncelog events`: what happens in a cluster, a line each."""

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


def register(app: App) -> None:
    """Add this file's command."""
    app.command(events)


def events(
    *,
    seconds: Annotated[float | None, Parameter(help="End after this time; else by Ctrl-C.")] = None,
    query: Query = QUERY,
) -> int:
    """Follow what happens: elections, ISR changes, fences, aborts, rebalances, a line each.

    Works with any Kafka. An event is the difference of two looks, every few seconds; of a cluster
    on this machine kills, pauses and cut links are told too.
    """
    if seconds is not None and not seconds > 0:
        raise Failure("--seconds has to be more than 0.", exit_code=2)
    run_until_signal(_follow(query, seconds))
    return 0


async def _follow(query: Query, seconds: float | None) -> None:
    from ...ui.running import observing

    observer = observing(watched_cluster(query), has_doctor=False)
    last: ClusterEvent | None = None
    end_s = None if seconds is None else time.monotonic() + seconds
    try:
        if query.format != "json":
            say("looks every 2 s; Ctrl-C ends it")
        while end_s is None or time.monotonic() < end_s:
            left_s = 3600.0 if end_s is None else end_s - time.monotonic()
            await observer.changed(max(0.0, left_s))
            for event in after(observer.facts.events, last):
                _print(event, query.format)
                last = event
    finally:
        await observer.close()


def after(
    known: "tuple[ClusterEvent, ...]", last: "ClusterEvent | None"
) -> "tuple[ClusterEvent, ...]":
    """Return the events that came after one, by which object it is: equal ones may repeat."""
    for at in range(len(known) - 1, -1, -1):
        if known[at] is last:
            return known[at + 1 :]
    return known


def _print(event: "ClusterEvent", output: str) -> None:
    if output == "json":
        fields = {"at_ms": event.at_ms, "kind": event.kind, "subject": event.subject}
        print(json.dumps({**fields, "sentence": event.sentence}), flush=True)
        return
    at = time.strftime("%H:%M:%S", time.localtime(event.at_ms / 1000))
    tell(f"{at}  {event.kind:<11}  {event.sentence}")

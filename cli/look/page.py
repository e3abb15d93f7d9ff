"""Commands that show a running cluster, as a web page, or in this terminal."""

import asyncio
import contextlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ...deploy.cluster import layout
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.lookup import open_cluster
from ...deploy.cluster.terminal import say, tell
from ...proof.pages.run_folder import report_in
from ..common import DEFAULT_CLUSTER, ClusterOptions
from .until_signal import run_until_signal

if TYPE_CHECKING:
    from ...ui.running import WatchedCluster

PORT_MAX = 65_535


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    app.command(ui)
    app.command(top)


def ui(
    run: Annotated[
        Path | None, Parameter(help="Show the folder of a run by chaos run, prove, demo or bench.")
    ] = None,
    /,
    *,
    port: Annotated[
        int | None, Parameter(help="The port of the page. The default is a free port.")
    ] = None,
    browser: Annotated[
        bool, Parameter(name="--open", negative="--no-open", help="Open the page in a browser.")
    ] = True,
    read_only: Annotated[
        bool, Parameter(help="Offer no changes in the page, and no faults.", negative=())
    ] = False,
    allow_writes: Annotated[
        bool, Parameter(help="Offer the abort of a transaction in the page.", negative=())
    ] = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show open transactions, blocked readers, lags and events of a cluster in a web page.

    The page is served on this machine only, until Ctrl-C. The first line of stdout is its address.
    The page works with any Kafka. It shows more of a cluster on this machine. There, its view
    Faults kills, pauses, cuts off and slows nodes. For the folder of a run, it shows the verdict,
    the events of one record, and the faults (docs/ui.md).
    """
    if read_only and allow_writes:
        raise Failure("Either --read-only or --allow-writes.", exit_code=2)
    if port is not None and not 0 < port <= PORT_MAX:
        raise Failure(f"--port is 1 to {PORT_MAX}.", exit_code=2)
    if not has_page():
        raise Failure(
            "The page needs the extra ui: pip install '.[ui]' in a checkout. "
            "Without it: oncelog top",
            exit_code=2,
        )
    from ...ui.running import run_page, run_report_page

    opens = browser and has_display()
    if run is not None:
        if allow_writes or cluster.bootstrap or cluster.command_config or cluster.profile:
            raise Failure("Either the folder of a run or a cluster.", exit_code=2)
        page = run_report_page(report_in(run), run.resolve().name, port=port, opens_browser=opens)
    else:
        page = run_page(
            watched_cluster(cluster),
            port=port,
            can_write=allow_writes,
            can_harm=not read_only,
            opens_browser=opens,
        )
    say("Ctrl-C ends the page")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(page)
    return 0


def top(
    *,
    once: Annotated[
        bool, Parameter(help="Print one table as plain text, and end.", negative=())
    ] = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show nodes, lags and open transactions in this terminal, and refresh them.

    LAG is the lag of a group to the end of the log. LSO-LAG is its lag to the last stable offset.
    Both are read from the leader. The key q quits, s sorts, Tab shows the next list, and / filters.
    """
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("top needs a terminal; for a program: oncelog top --once", exit_code=2)
    return run_until_signal(_top(watched_cluster(cluster), is_once=once)) or 0


async def _top(watched: "WatchedCluster", *, is_once: bool) -> int:
    from ...ui import top as terminal
    from ...ui.running import cluster_name, observing

    observer = observing(watched)
    try:
        if not is_once:
            await terminal.watch(observer, cluster_name(watched))
            return 0
        observer.admin.view.on_silence = say
        facts = await terminal.first_look(observer)
        if facts.cluster is None:
            raise Failure("; ".join(facts.silent.values()) or "The cluster does not answer.")
        tell(*terminal.once(facts).split("\n"), is_wrapped=False)
        return 0
    finally:
        await observer.close()


def watched_cluster(cluster: ClusterOptions) -> "WatchedCluster":
    """Return the requested cluster, with its nodes if it is found by its directory.

    A cluster named by --bootstrap, --command-config or --profile has no nodes here, even if it is
    on this machine.
    """
    from ...ui.running import WatchedCluster

    config = cluster.client_config()  # says which it is, or that there is none
    named = cluster.bootstrap or cluster.command_config or cluster.profile
    file = None if named else layout.read(cluster.data.resolve())
    is_own = file is not None and config["bootstrap.servers"] == file.bootstrap
    own = open_cluster(cluster.data) if is_own else None
    return WatchedCluster(choice=cluster, own=own)


def has_page() -> bool:
    """Return whether the packages that serve the web page are installed."""
    return find_spec("starlette") is not None and find_spec("uvicorn") is not None


def has_display() -> bool:
    """Return whether this machine has a display, so that a browser can be opened."""
    is_x = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform == "darwin" or bool(is_x)

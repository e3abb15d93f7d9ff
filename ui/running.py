"""The process of `oncelog ui`, which observes, serves, and ends on a signal.

Functions that serve import the modules with packages of the extra `ui` themselves. `oncelog top`,
`events` and `metrics` only observe, and work without these packages.
"""

import asyncio
import contextlib
import secrets
import shutil
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from ..deploy.cluster.ends.guardian import guardian
from ..deploy.cluster.failure import Failure
from ..deploy.cluster.local_cluster import Cluster
from ..deploy.cluster.lookup import ClusterChoice
from ..deploy.inspect.abort_transactions import abort_hanging, abort_id
from ..deploy.inspect.doctor import examine
from ..deploy.inspect.logged_events import EventLogs
from ..deploy.inspect.node_troubles import link_troubles, metrics_of
from ..proof.pages.run_report import RunReport
from .facts import ObservedNode, Trouble
from .faults.load import Load
from .faults.own_faults import do_fault
from .observer import Observer
from .web.access import PageAccess
from .web.site import Site

FIRST_LINE = "oncelog ui: "
NODES_EVERY_S, DOCTOR_EVERY_S = 2.0, 15.0
# What the page shows by itself, and fresher.
CHECKS_LEFT_OUT = ("cluster", "answers", "controller", "without leader", "not fully in sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCluster:
    """The options that name the observed cluster.

    own: the cluster on this machine, or None if it runs elsewhere or was named by its address.
    """

    choice: ClusterChoice
    own: Cluster | None = None


def observing(watched: WatchedCluster, *, has_doctor: bool = True) -> Observer:
    """Return a started observer of the cluster. The caller must run in an event loop.

    has_doctor: also observe the results of `oncelog doctor`, if the cluster is on this machine.
    """
    logs = None if watched.own is None else event_logs(watched.own)
    observer = Observer(watched.choice.client_config(), logs)
    others: dict[str, Any] = {}
    if (own := watched.own) is not None:

        async def nodes() -> Mapping[str, Any]:
            return await asyncio.to_thread(node_facts, own)

        async def checks() -> Mapping[str, Any]:
            return await asyncio.to_thread(doctor_checks, own.data)

        others["nodes"] = NODES_EVERY_S, nodes
        if has_doctor:
            others["doctor"] = DOCTOR_EVERY_S, checks
    observer.start(others)
    return observer


def event_logs(cluster: Cluster) -> EventLogs:
    """Return the event logs of the nodes of a cluster on this machine."""
    return EventLogs({node_id: cluster.node(node_id).log for node_id in cluster.node_ids})


def node_facts(cluster: Cluster) -> dict[str, Any]:
    """Return the current state of each node on this machine as the part `nodes` of the facts."""
    found: dict[int, ObservedNode] = {}
    for status in cluster.status():
        is_running = status.state == "running"
        told = metrics_of(cluster, status.node_id) if is_running else {}
        found[status.node_id] = ObservedNode(
            node_id=status.node_id,
            state=status.state,
            pid=status.pid,
            rss_bytes=status.rss_bytes,
            cpu_s=status.cpu_s,
            up_s=time.time() - status.started_s if status.started_s else None,
            faults=link_troubles(cluster, status.node_id) if is_running else "",
            loop=told.get("loop"),
            disk=told.get("disk") or "",
            traffic=told.get("traffic") or {},
        )
    return {"nodes": found}


def doctor_checks(data: Path) -> dict[str, Any]:
    """Return the results of `oncelog doctor` as the part `checks` of the facts.

    Results that the page finds by itself, and those about packages that are not installed, are left
    out.
    """
    try:
        found = examine(data)
    except Failure as problem:
        return {"checks": (Trouble("doctor", "bad", str(problem)),)}
    return {
        "checks": tuple(
            Trouble(each.check, each.state, each.found, each.advice)
            for each in found
            if each.check not in CHECKS_LEFT_OUT and "not installed" not in each.found
        )
    }


async def run_page(
    watched: WatchedCluster,
    *,
    port: int | None,
    can_write: bool,
    can_harm: bool,
    opens_browser: bool,
) -> None:
    """Serve the page of a cluster until a signal.

    The first line of stdout is the address, with its token. can_write: allow aborts of
    transactions. can_harm: allow faults, if the cluster is on this machine.
    """
    from .web.app import application
    from .web.server import listening_socket, serve

    sock = listening_socket(port)
    access = PageAccess(sock.getsockname()[1])
    observer = observing(watched)
    site = Site(observer=observer, access=access, cluster_name=cluster_name(watched))
    if can_write:
        site.abort = partial(end_transaction, watched.choice, observer)
    load = Load(watched.choice.client_config())
    if can_harm and watched.own is not None:
        site.fault = partial(harm, watched.own, load, asyncio.Lock())
        site.load_words = lambda: load.words
    try:
        with _telling(access, opens_browser=opens_browser) as ready:
            await serve(application(site), sock, ready, site.end)
    finally:
        await load.close()
        await observer.close()
        sock.close()


async def run_report_page(
    report: RunReport, folder: str, *, port: int | None, opens_browser: bool
) -> None:
    """Serve the report of a run until a signal. The first line of stdout is the address."""
    from .web.run_site import run_application
    from .web.server import listening_socket, serve

    sock = listening_socket(port)
    try:
        access = PageAccess(sock.getsockname()[1])
        with _telling(access, opens_browser=opens_browser) as ready:
            await serve(run_application(report, folder, access), sock, ready)
    finally:
        sock.close()


@contextlib.contextmanager
def _telling(access: PageAccess, *, opens_browser: bool) -> Iterator[Callable[[], None]]:
    """Yield a function that prints the page's address, and opens a browser if `opens_browser`."""
    from .web.server import HOST

    url = f"http://{HOST}:{access.port}/?token={access.token}"
    with contextlib.ExitStack() as stack:

        def ready() -> None:
            print(f"{FIRST_LINE}{url}", flush=True)
            if opens_browser:
                stack.enter_context(_in_browser(url))

        yield ready


def cluster_name(watched: WatchedCluster) -> str:
    """Return the name that the page shows for a cluster: its address, and its directory if any."""
    config = watched.choice.client_config()
    servers = config["bootstrap.servers"]
    line = servers if isinstance(servers, str) else ",".join(servers)
    return f"{watched.own.data.name} at {line}" if watched.own is not None else line


async def end_transaction(
    choice: ClusterChoice, observer: Observer, fields: Mapping[str, str]
) -> str:
    """Abort the transaction that the fields of a form name. Return a sentence about the result.

    The fields have a transactional id, or a partition and producer id for a hanging transaction.
    """
    if name := fields.get("transactional_id"):
        return f"{name}: {await asyncio.to_thread(abort_id, choice, name)}"
    key, producer_id = (fields["topic"], int(fields["partition"])), int(fields["producer_id"])
    since = await abort_hanging(observer.admin, key, producer_id)
    where = f"{key[0]}/{key[1]}"
    return f"{where}: aborted the transaction of producer {producer_id} from offset {since} on"


async def harm(
    cluster: Cluster, load: Load, one_at_a_time: asyncio.Lock, fields: Mapping[str, str]
) -> str:
    """Inject the fault that a form requests, or start a load. Return a sentence about the result.

    Raises Failure while another fault is being injected.
    """
    kind = fields.get("kind", "")
    if kind == "load":
        return load.begin()
    if one_at_a_time.locked():
        raise Failure("Another fault is running. Wait for its proof.")
    async with one_at_a_time:
        return await asyncio.to_thread(do_fault, cluster, kind, fields.get("target", "").strip())


@contextlib.contextmanager
def _in_browser(url: str) -> Iterator[None]:
    """Open the page in a browser, through a file that contains the address with its token.

    A command line with the token would be visible to all users.
    """
    folder = Path(tempfile.gettempdir()) / f"oncelog-ui-{secrets.token_hex(8)}"
    with guardian.kept("directory", folder):
        try:
            folder.mkdir(mode=0o700)
            file = folder / "open.html"
            words = f'<meta http-equiv="refresh" content="0;url={escape(url)}">'
            file.write_text(f"<!doctype html><title>oncelog</title>{words}", encoding="utf-8")
            # The server answers meanwhile, because starting a browser takes seconds.
            threading.Thread(target=_open, args=(file,), name="browser", daemon=True).start()
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _open(file: Path) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(file.as_uri())

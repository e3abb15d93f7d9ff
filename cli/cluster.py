"""Commands about the cluster itself: start and stop, health, faults."""

import contextlib
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from ..deploy.cluster import layout
from ..deploy.cluster.advice import repeat_options, shell_command
from ..deploy.cluster.failure import Failure
from ..deploy.cluster.lookup import open_cluster
from ..deploy.cluster.targets import SYNTAX
from ..deploy.cluster.terminal import say, show, show_one, tell
from ..wire.printable import printable
from .common import (
    DEFAULT_DATA,
    QUERY,
    Data,
    Format,
    Pairs,
    Query,
    feature_levels,
    headings,
    pairs,
    print_report,
)
from .security.environment import env

if TYPE_CHECKING:
    from ..deploy.cluster.local_cluster import Cluster

NODE_COLUMNS = headings(
    "node", "kafka", "pid", "state", "role", "leads", "rss_mb", "cpu_s", "up_s", "stall_ms",
    cpu_s="CPU s", up_s="UP s", stall_ms="STALL ms",
)  # fmt: skip
BROKEN_COLUMNS = {**NODE_COLUMNS, **headings("faults")}  # where a node has some
NODE_OPTIONAL = ("stall_ms", "up_s", "cpu_s", "rss_mb", "leads")  # in a narrow terminal
CLUSTER_COLUMNS = headings("nodes", "running", "directory")
STARTED_COLUMNS = headings("node", "kafka", "pid", "role")
PORT_MAX = 65_535
ALL_LOGGERS = "oncelog"
LOG_FORMAT_KEY = "oncelog.log.format"
PROBE_COLUMNS = headings(
    "node", "answers", "p50_ms", "p99_ms", "max_ms", "less_wait_ms", "silent_ms", "lost", "fences",
    "waited_ms", "cpu_s", "rss_mb",
    p50_ms="P50 ms", p99_ms="P99 ms", max_ms="MAX ms", silent_ms="SILENT ms", fences="FENCED",
    less_wait_ms="LESS WAIT",  # the latest answer without waits for a processor
    waited_ms="WAITED ms", cpu_s="CPU s",
)  # fmt: skip
PROBE_OPTIONAL = (
    "rss_mb",
    "cpu_s",
    "less_wait_ms",
    "lost",
    "p50_ms",
    "waited_ms",
    "fences",
    "answers",
)
Target = Annotated[str, Parameter(help=SYNTAX)]


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    for command in (
        up, ps, env, doctor, logs, down, kill, stop, start, restart, pause, resume, partition, slow,
        heal, node,
    ):  # fmt: skip
        app.command(command)


def up(
    *,
    nodes: Annotated[
        int | None,
        Parameter(
            name=["--nodes", "-n"],
            help="The number of nodes: 1, 3, 4 or 5. The default is 3, or the existing nodes.",
        ),
    ] = None,
    first_id: Annotated[int, Parameter(help="The id of the first node.")] = 1,
    data: Data = DEFAULT_DATA,
    port: Annotated[
        int | None, Parameter(help="The first node's port; the next nodes' follow it.")
    ] = None,
    rf: Annotated[
        int | None,
        Parameter(
            name=["--rf", "--replication-factor"], help="The cluster's default.replication.factor."
        ),
    ] = None,
    min_isr: Annotated[int | None, Parameter(help="The cluster's min.insync.replicas.")] = None,
    txn_shards: Annotated[
        int | None, Parameter(help="The number of shards of the transaction coordinator.")
    ] = None,
    clock: Annotated[
        Literal["system", "controlled"] | None,
        Parameter(help="With controlled, `oncelog clock advance` can advance the time."),
    ] = None,
    metrics: Annotated[
        bool | None, Parameter(help="Serve /metrics on each node, on this machine only.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        Parameter(help="The port of the first node's metrics; the next nodes' follow it."),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"] | None, Parameter(help="The format of the lines in each node.log.")
    ] = None,
    secure: Annotated[
        bool,
        Parameter(help="Use TLS, logins and an authorizer; write files for clients.", negative=()),
    ] = False,
    config: Pairs = None,
    feature: Annotated[
        list[str] | None,
        Parameter(
            help="A feature level as NAME=LEVEL, e.g. transaction.version=0. The option may "
            "be repeated.",
            negative=(),
        ),
    ] = None,
    profile: Annotated[
        Literal["local", "kafka"],
        Parameter(
            help="Six settings of server.properties: for a fast fail-over and a fast start "
            "(local), or with Kafka's defaults (kafka)."
        ),
    ] = "local",
    format: Format = "table",
) -> None:
    """Start a cluster in the background, check that it serves, and print how to reach it."""
    from ..deploy.cluster.local_cluster import Cluster

    started = time.monotonic()
    metrics = _wants_metrics(metrics, metrics_port)
    repeat_options(data=None if data == DEFAULT_DATA else data)
    known = layout.read(data.resolve()) if nodes is None else None
    own = {} if log_format is None else {LOG_FORMAT_KEY: log_format}
    cluster = Cluster(
        nodes or (len(known.nodes) if known is not None else 3),
        data=data,
        first_id=first_id,
        port=port,
        rf=rf,
        min_isr=min_isr,
        txn_shards=txn_shards,
        clock=clock,
        secure=secure,
        metrics=metrics,
        metrics_port=metrics_port,
        config={**own, **pairs(config)},
        profile=profile,
    )
    levels = feature_levels(feature)
    cluster.up(lambda node_id: say(f"node {node_id} serves"))
    if levels:
        cluster.ask(lambda admin: admin.update_features(levels))
    seconds = time.monotonic() - started
    if format == "json":
        described = {"bootstrap": cluster.bootstrap, "ready_s": round(seconds, 3)}
        show_one({**described, "data": cluster.data, "nodes": _node_rows(cluster)}, format)
        return
    show(_node_rows(cluster), format, columns=STARTED_COLUMNS)
    tell(f"ready in {seconds:.1f} s   bootstrap.servers={cluster.bootstrap}")
    for entry in cluster.file.nodes:
        if entry.metrics_url:
            tell(f"metrics of node {entry.node_id}: {entry.metrics_url}")
    if cluster.file.is_secured:
        tell(f"clients: {cluster.data}/client/{{admin,alice,bob}}.{{librdkafka,java}}.properties")
    create = shell_command("topic create", "orders", partitions=6)
    tell(f'next: eval "$({shell_command("env")})"   {create}')


def _wants_metrics(metrics: bool | None, port: int | None) -> bool | None:
    """Return whether --metrics or --metrics-port requests metrics on each node.

    Returns None without both options, which keeps the setting of an existing cluster.
    """
    if port is not None and (metrics is False or not 0 < port <= PORT_MAX):
        raise Failure(f"--metrics-port is 1 to {PORT_MAX}, and not for --no-metrics.", exit_code=2)
    wants = True if port is not None else metrics
    if wants and find_spec("prometheus_client") is None:
        raise Failure(
            "Metrics need the extra metrics: pip install '.[metrics]' in a checkout.", exit_code=2
        )
    return wants


def ps(
    *,
    everywhere: Annotated[
        bool,
        Parameter(
            name="--all", help="List all clusters of this user, one in each row.", negative=()
        ),
    ] = False,
    data: Data = DEFAULT_DATA,
    format: Format = "table",
) -> None:
    """List the nodes with their process, state, role, memory, CPU, faults and disk problems."""
    if everywhere:
        from ..deploy.cluster.ends.leftovers import clusters_of_user

        show([found.row for found in clusters_of_user()], format, columns=CLUSTER_COLUMNS)
        return
    rows = _node_rows(open_cluster(data))
    columns = BROKEN_COLUMNS if any(row["faults"] for row in rows) else NODE_COLUMNS
    show(rows, format, columns=columns, optional=NODE_OPTIONAL)


def doctor(
    *,
    probe: Annotated[
        bool, Parameter(help="Ping every node every 5 ms, and report late answers.", negative=())
    ] = False,
    seconds: Annotated[float, Parameter(help="The duration of the probe in seconds.")] = 10.0,
    query: Query = QUERY,
) -> int:
    """Check this machine, the data directory and the cluster for problems.

    With --probe, measure how late each node answers. The exit code is then 1 if an answer took more
    than 200 ms, or if a live node was fenced.
    """
    if probe:
        return _probe(query, seconds)
    if query.bootstrap is not None or query.command_config is not None:
        raise Failure(
            "--bootstrap and --command-config belong to --probe; the other checks use --data.",
            exit_code=2,
        )
    from ..deploy.inspect.doctor import examine

    repeat_options(data=None if query.data == DEFAULT_DATA else query.data)
    checks = examine(query.data)
    show([asdict(check) for check in checks], query.format)
    return int(any(check.state == "bad" for check in checks))


def logs(
    node: int,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], help="Wait for new lines.", negative=())
    ] = False,
    lines: Annotated[int, Parameter(help="The number of last lines to print.")] = 50,
    level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Parameter(help="Set the log level of the node until it stops."),
    ] = None,
    logger: Annotated[
        str, Parameter(help="Set the --level of this logger and of its child loggers.")
    ] = ALL_LOGGERS,
    data: Data = DEFAULT_DATA,
    format: Format = "table",
) -> None:
    """Print the log of a node. With -f, also print new lines."""
    cluster = open_cluster(data)
    process = cluster.node(node)
    if logger != ALL_LOGGERS and level is None:
        raise Failure("--logger belongs to --level.", exit_code=2)
    if level is not None:
        cluster.ask_node(node, {"op": "level", "level": level, "logger": logger})
        say(f"node {node} logs {logger} from {level} on")
    tail = process.log_tail(lines).split("\n")
    print_report({"node": node, "file": process.log, "lines": tail}, tail, format)
    if format == "json" or not follow:
        return
    with process.log.open(errors="replace") as file:
        file.seek(0, os.SEEK_END)
        while True:
            sys.stdout.write(printable(file.read(), keep="\n\t"))
            sys.stdout.flush()
            time.sleep(0.1)


def down(
    *,
    purge: Annotated[bool, Parameter(help="Also remove the data.", negative=())] = False,
    everywhere: Annotated[
        bool,
        Parameter(
            name="--all",
            help="Stop all clusters of this user, and remove the leftovers of killed commands.",
            negative=(),
        ),
    ] = False,
    data: Data = DEFAULT_DATA,
) -> int:
    """Stop every node. The data is kept unless --purge is given."""
    if everywhere:
        from ..deploy.cluster.ends.leftovers import end_all_of_user

        return end_all_of_user(is_purged=purge)
    cluster = open_cluster(data)
    for node_id in cluster.down(purge=purge):
        words = cluster.node(node_id).log
        say(f"node {node_id} did not stop by itself and was killed: a defect of oncelog ({words})")
    say(f"all nodes ended; {'data removed' if purge else f'data kept in {cluster.data}'}")
    return 0


def kill(target: Target, /, *, data: Data = DEFAULT_DATA) -> None:
    """Kill a node with SIGKILL, and wait until its process and its port are gone.

    For leader:, group: and txn:, also wait up to 15 s until another node has the role.
    """
    from ..deploy.cluster import targets

    cluster = open_cluster(data)
    role, name, number = targets.parse(target)
    node_id = cluster.resolve(target, states=("running", "paused"))
    pid = cluster.node(node_id).kill()
    killed_at = time.monotonic()
    tell(f"killed node {node_id} (pid {pid} gone, port refuses)", end="")
    if role in ("leader", "group", "txn"):
        lost = f"{name}/{number}: leader" if role == "leader" else f"{target}: coordinator"
        taken_over = _successor(cluster, target, node_id, killed_at)
        tell(f"   {lost} {node_id}{taken_over}", end="")
    tell("")


def stop(target: Target, /, *, data: Data = DEFAULT_DATA) -> None:
    """Stop a node gracefully (SIGTERM), after its leaders have moved to other nodes."""
    tell(f"stopped node {open_cluster(data).stop(target)}")


def start(target: Target, /, *, data: Data = DEFAULT_DATA) -> None:
    """Start a stopped node, and wait until it serves."""
    began = time.monotonic()
    node_id = open_cluster(data).start(target)
    tell(f"started node {node_id}, ready in {time.monotonic() - began:.1f} s")


def restart(target: Target, /, *, data: Data = DEFAULT_DATA) -> None:
    """Stop a node gracefully and start it again on the same data."""
    tell(f"restarted node {open_cluster(data).restart(target)}")


def pause(target: Target, /, *, data: Data = DEFAULT_DATA) -> None:
    """Pause a node with SIGSTOP. It keeps its connections, and answers nothing until `resume`."""
    tell(f"paused node {open_cluster(data).pause(target)} (its process is in state T)")


def resume(target: Target, /, *, data: Data = DEFAULT_DATA) -> None:
    """Continue a paused node."""
    tell(f"resumed node {open_cluster(data).resume(target)}")


def partition(
    groups: Annotated[str, Parameter(help="Two groups of nodes, e.g. 1,2/3.")],
    /,
    *,
    one_way: Annotated[
        bool, Parameter(help="Cut only messages from the first group to the second.", negative=())
    ] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Cut the links between two groups of nodes. Clients still reach all of them."""
    left, separator, right = groups.partition("/")
    words = [[word.strip() for word in side.split(",")] for side in (left, right)]
    if not separator or not all(word.isdecimal() for side in words for word in side):
        raise Failure(f"{groups!r} is not two groups. Write for instance 1,2/3.", exit_code=2)
    sides = [[int(word) for word in side] for side in words]
    open_cluster(data).partition(*sides, one_way=one_way)
    tell(f"cut {left} {'->' if one_way else '|'} {right}; mend it with: {shell_command('heal')}")


def slow(target: Target, delay: str, /, *, data: Data = DEFAULT_DATA) -> None:
    """Delay all messages of a node to other nodes, for example by 50ms."""
    number = delay.removesuffix("ms")
    if not number.isdecimal():
        raise Failure(f"{delay!r} is not a delay. Write for instance 50ms.", exit_code=2)
    node_id = open_cluster(data).slow(target, int(number))
    tell(f"node {node_id} sends {number} ms late; mend it with: {shell_command('heal')}")


def heal(*, data: Data = DEFAULT_DATA) -> None:
    """Restore all links, resume paused nodes, and start stopped nodes."""
    open_cluster(data).heal()
    tell("all nodes run, and all links work")


def node(
    *,
    config: Annotated[
        Path, Parameter(help="Read the configuration from this server.properties file.")
    ],
) -> None:
    """Run one broker in the foreground, for service managers and several hosts."""
    if not config.is_file():
        raise Failure(f"{config} is not a file; --config wants a server.properties.", exit_code=2)
    command = [sys.executable, "-P", "-m", "oncelog.node", "--config", str(config.resolve())]
    os.execv(sys.executable, command)


def _probe(query: Query, seconds: float) -> int:
    """Print how late each node answers, measured for `seconds`. Return the command's exit code.

    For a local cluster, also print how often a node was fenced and why its event loop stalled.
    """
    from ..deploy.inspect.cluster_watch import ClusterWatch, WatchResult
    from ..deploy.inspect.probe import LIMIT_MS, Probe, targets_behind

    config = query.named_config()
    if config is None:
        with ClusterWatch(open_cluster(query.data)) as watch:
            time.sleep(seconds)
            seen = watch.stop()
    else:
        is_secured = config.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT"
        with (
            query.as_failures(),
            Probe(targets_behind(config), config=config if is_secured else None) as asking,
        ):
            time.sleep(seconds)
            seen = WatchResult(asking.stop(), {}, {}, {})
    rows = [
        {**row, "fences": seen.fences.get(row["node"], 0), "stalls": seen.stalls.get(row["node"])}
        for row in seen.probe.rows()
    ]
    show(rows, query.format, columns=PROBE_COLUMNS, optional=PROBE_OPTIONAL)
    if query.format != "json":
        for row in rows:
            for sentence in row["stalls"] or ():
                tell(f"node {row['node']}: {sentence}")
        tell(f"the probe itself waited {seen.probe.waited_ms:.0f} ms for a processor")
    return 1 if seen.fences or seen.probe.max_ms > LIMIT_MS else 0


def _node_rows(cluster: "Cluster") -> list[dict[str, Any]]:
    """Return the rows of `ps`, with empty roles while the cluster does not answer."""
    from ..deploy.inspect.node_troubles import link_troubles, metrics_of
    from ..wire.errors import KafkaError

    leads: Counter[int] | None = None
    controller = -1
    statuses = cluster.status()
    if any(s.state == "running" for s in statuses):
        from ..deploy.cluster.blocking_admin import blocking_admin

        try:
            with blocking_admin(cluster.client_config(), timeout_ms=2_000) as admin:
                leads = Counter(p.leader for p in admin.describe_topics())
                controller = admin.controller()
        except KafkaError as problem:
            say(f"the nodes' roles are not known: {problem}")
    now = time.time()
    running = [s.node_id for s in statuses if s.state == "running"]
    metrics = {node_id: metrics_of(cluster, node_id) for node_id in running}
    loops = {node_id: told.get("loop", {}) for node_id, told in metrics.items()}
    troubles = {
        node_id: "; ".join(filter(None, (link_troubles(cluster, node_id), told.get("disk"))))
        for node_id, told in metrics.items()
        if told  # else it is silent, and would be waited for twice
    }
    return [
        {
            "node": s.node_id,
            "kafka": s.address,
            "pid": s.pid,
            "state": s.state,
            "role": "controller" if s.node_id == controller else "",
            "leads": leads[s.node_id] if leads is not None else None,
            "rss_mb": s.rss_bytes // 1_000_000 if s.pid else None,
            "cpu_s": round(s.cpu_s, 2) if s.pid else None,
            "up_s": round(now - s.started_s, 1) if s.pid else None,
            # 0 if no turn took more than 100 ms
            "stall_ms": loops.get(s.node_id, {}).get("longest_ms"),
            "faults": troubles.get(s.node_id, ""),
            "metrics": cluster.file.entry(s.node_id).metrics_url,
        }
        for s in statuses
    ]


def _successor(cluster: "Cluster", role: str, old: int, killed_at: float) -> str:
    """Wait at most 15 s until another node than `old` has the role.

    Return text with the id of that node and the time since `killed_at`, or that there is none.
    """
    from ..wire.errors import KafkaError

    while time.monotonic() < killed_at + 15:
        with contextlib.suppress(Failure, KafkaError):
            if (new := cluster.resolve(role)) != old:
                return f" -> {new} in {(time.monotonic() - killed_at) * 1000:.0f} ms"
        time.sleep(0.01)
    return ", and no node took over in 15 s"

"""Measurements with a limit, such as the restart time of a node or the cost of an idle cluster."""

import time

from .restart import fill
from .stage import Stage

IDLE_S = 20.0
IDLE_CPU_PERCENT_MAX, IDLE_RSS_MAX_BYTES = 10.0, 250_000_000
CREATE_MORE_MAX_S, FULL_BACK_MAX_S, WIDE_BACK_MAX_S = 2.0, 3.0, 10.0
COMMANDS = 10


def restart_full(stage: Stage, factor: float) -> None:
    """Kill and restart a node with 10 GB in 100 partitions, within a time limit."""
    total_bytes = int(10_000_000_000 * factor)
    stage.require_room(3 * total_bytes)
    fill(stage, "full", 100, total_bytes)
    _kill_and_start(
        stage, f"{total_bytes / 1e9:g} GB in 100 partitions", FULL_BACK_MAX_S, {"full": 100}
    )


def restart_wide(stage: Stage, factor: float) -> None:
    """Kill and restart a node with 10,000 partitions, within a time limit."""
    topics = _make_wide(stage, factor)
    count = sum(topics.values())
    _kill_and_start(stage, f"{count:,} partitions", WIDE_BACK_MAX_S, topics)


def idle(stage: Stage, factor: float) -> None:
    """Measure the CPU time of a cluster with 10,000 unused partitions, before the probe runs."""
    count = sum(_make_wide(stage, factor).values())
    time.sleep(5)
    before = {s.node_id: s.cpu_s for s in stage.cluster.status()}
    time.sleep(IDLE_S)
    after = stage.cluster.status()
    percent = sum(s.cpu_s - before[s.node_id] for s in after) / IDLE_S * 100
    rss_bytes = max(s.rss_bytes for s in after)
    with stage.watched(f"{count:,} idle partitions"):
        time.sleep(1)
    stage.note(f"{percent:.1f} % of a core over all nodes, at most {rss_bytes / 1e6:.0f} MB a node")
    stage.require(percent <= IDLE_CPU_PERCENT_MAX, f"{percent:.1f} % of a core")
    stage.require(rss_bytes <= IDLE_RSS_MAX_BYTES, f"{rss_bytes / 1e6:.0f} MB")


def create_more(stage: Stage, factor: float) -> None:
    """Create 1,000 partitions beside 10,000 others, within a time limit."""
    count = sum(_make_wide(stage, factor).values())
    more = max(1, int(1_000 * factor))
    with stage.watched(f"{more:,} partitions more beside {count:,}"):
        stage.create("more", more)
    seconds = stage.outcome.seconds
    stage.require(seconds <= CREATE_MORE_MAX_S, f"{seconds:.1f} s to create {more:,} partitions")


def _make_wide(stage: Stage, factor: float) -> dict[str, int]:
    each = max(1, int(10_000 * factor) // COMMANDS)
    topics = {f"wide-{number}": each for number in range(COMMANDS)}
    began = time.monotonic()
    for topic in topics:
        stage.create(topic, each)
    seconds = time.monotonic() - began
    stage.note(f"{each * COMMANDS:,} partitions by {COMMANDS} commands in {seconds:.1f} s")
    return topics


def _kill_and_start(stage: Stage, what: str, limit_s: float, topics: dict[str, int]) -> None:
    """Kill and restart a node, and note the times until it serves and is in sync.

    Time without a processor does not count toward the limit.
    """
    victim = next(i for i in stage.cluster.node_ids if i != stage.cluster.controller())
    with stage.watched(f"kill -9 and restart of a node with {what}") as watch:
        watch.kill(victim)
        time.sleep(2)
        began = time.monotonic()
        watch.start(victim)
        serving_s = time.monotonic() - began
        for topic, partitions in topics.items():
            stage.wait_in_sync(topic, partitions)
        in_sync_s = time.monotonic() - began
        waited_s = _waited_s(stage, victim)
    stage.note(
        f"serving after {serving_s:.1f} s, in sync after {in_sync_s:.1f} s, "
        f"of which {waited_s:.1f} s waiting for a processor"
    )
    own_s = in_sync_s - waited_s
    stage.require(own_s <= limit_s, f"in sync after {own_s:.1f} s, {limit_s:g} s are allowed")


def _waited_s(stage: Stage, node_id: int) -> float:
    process = stage.cluster.node(node_id).find()
    assert process is not None
    with open(f"/proc/{process.pid}/schedstat") as file:
        return int(file.read().split()[1]) / 1e9

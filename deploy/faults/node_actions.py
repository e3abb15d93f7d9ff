"""Faults of nodes, which only one scheduler may inject, since it stops and starts nodes."""

import contextlib
import errno
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ..cluster.failure import Failure
from .engine import Action, FaultContext
from .faulty_cluster import FaultyCluster
from .node_faults import offset_of
from .schedule import Fault

MOMENTS = (
    "transactions.before-ongoing", "transactions.after-ongoing", "transactions.before-prepare",
    "transactions.after-prepare", "transactions.after-some-markers",
    "transactions.after-all-markers", "transactions.after-complete", "partition.before-marker",
    "partition.after-marker", "log.append.before-write", "log.append.after-write",
    "raft.journal.before-write", "raft.journal.after-write", "raft.journal.before-sync",
    "raft.journal.after-sync", "raft.apply.before", "raft.apply.after", "raft.propose.before",
    "replica.before-high-watermark", "replica.after-high-watermark",
    "log.high-watermark.before-advance",
)  # fmt: skip
DISK_POINTS = ("log.append.before-write", "log.append.before-write", "raft.journal.before-write")
DISK_ERRORS = {"disk-full": errno.ENOSPC, "disk-error": errno.EIO}
SEEN_WITHIN_S = 4.0
IN_SYNC_WITHIN_S = 30.0
LEVEL_S = 1.0  # in this time the others get all records that the leaving node has acknowledged
HOUR_MS = 3_600_000


class NodeContext(FaultContext[FaultyCluster]):
    """The context of node faults.

    victims: functions that return the node or role to kill, by the kind of the fault. broken:
    sentences about nodes that ended by themselves or were not repaired.
    """

    victims: Mapping[str, Callable[[Fault], str]]

    def __init__(self, cluster: FaultyCluster) -> None:
        super().__init__(cluster)
        self.broken: list[str] = []


def ensure_all_run(context: NodeContext) -> None:
    """Start stopped nodes and resume paused nodes between two faults.

    A stopped node is recorded as broken, because it has ended by itself.
    """
    for status in context.cluster.status():
        if status.state == "paused":
            context.cluster.resume(status.node_id)
        elif status.state == "down":
            code = context.cluster.node(status.node_id).exit_code()
            context.broken.append(f"node {status.node_id} ended by itself (exit code {code})")
            context.cluster.start(status.node_id)


def _kill(context: NodeContext, fault: Fault) -> None:
    node_id = context.cluster.kill(context.victims[fault.kind](fault))
    context.hit(fault, f"node {node_id}", fault.between(1, 0.1, 1.2 * context.session_s))
    context.cluster.start(node_id)


def _kill_all(context: NodeContext, fault: Fault) -> None:
    nodes = context.cluster.node_ids
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node_id: _try_to_kill(context, node_id), nodes))
    if any(status.state != "down" for status in context.cluster.status()):
        raise Failure("not all nodes were down at once")
    context.hit(fault, "all nodes", fault.between(1, 0.0, 0.5))
    context.cluster.start_all(fault.turned(2, nodes))


def _try_to_kill(context: NodeContext, node_id: int) -> None:
    with contextlib.suppress(Failure):
        context.cluster.kill(node_id)


def _die_at_a_moment(context: NodeContext, fault: Fault) -> None:
    node_id = fault.pick(0, context.cluster.node_ids)
    moment = fault.pick(1, MOMENTS)
    context.cluster.ask_faults(node_id, {"op": "die", "point": moment})
    try:
        context.until(lambda: _is_down(context, node_id), SEEN_WITHIN_S, f"a death at {moment}")
    except Failure:
        with contextlib.suppress(Failure):  # it may die at this very moment
            _heal_inside(context, node_id)
        if not _is_down(context, node_id):
            raise
    context.hit(fault, f"node {node_id} at {moment}", fault.between(2, 0.1, context.session_s))
    context.cluster.start(node_id)


def _pause(context: NodeContext, fault: Fault) -> None:
    node_id = fault.pick(0, context.cluster.node_ids)
    context.cluster.pause(node_id)
    try:
        context.hit(fault, f"node {node_id}", context.session_s * fault.between(1, 1.1, 2.0))
    finally:
        context.cluster.resume(node_id)


def _stutter(context: NodeContext, fault: Fault) -> None:
    node_id = fault.pick(0, context.cluster.node_ids)
    for _ in range(int(fault.between(1, 8, 20))):
        context.cluster.pause(node_id)
        context.sleep(0.08)
        context.cluster.resume(node_id)
        context.hit(fault, f"node {node_id}", 0.04)


def _restart(context: NodeContext, fault: Fault) -> None:
    node_id = fault.pick(0, context.cluster.node_ids)
    context.cluster.stop(node_id)
    context.hit(fault, f"node {node_id}", fault.between(1, 0.0, 1.0))
    context.cluster.start(node_id)


def _wipe(context: NodeContext, fault: Fault) -> None:
    """Stop a node, remove its data, and start it, with all replicas in sync before and afterwards.

    If another replica lacked a record, the removal could lose the record.
    """
    node_id = fault.pick(0, context.cluster.node_ids)

    def is_whole() -> bool:
        return not context.cluster.missing_replicas()

    with context.links_in_use:
        context.until(is_whole, IN_SYNC_WITHIN_S, "all replicas in sync")
        context.cluster.stop(node_id)
        try:
            context.sleep(LEVEL_S)
            context.cluster.wipe(node_id)
            context.hit(fault, f"node {node_id}")
        finally:
            context.cluster.start(node_id)
        context.until(is_whole, IN_SYNC_WITHIN_S, "the wiped node in sync")


def _disk(context: NodeContext, fault: Fault) -> None:
    node_id = fault.pick(0, context.cluster.node_ids)
    point, code = fault.pick(1, DISK_POINTS), DISK_ERRORS[fault.kind]
    before = context.cluster.ask_faults(node_id, {"op": "counts"})["errors"]
    context.cluster.ask_faults(node_id, {"op": "disk", "point": point, "errno": code})

    def is_seen() -> bool:
        if _is_down(context, node_id):
            return True  # it cannot continue without the failed write
        return context.cluster.ask_faults(node_id, {"op": "counts"})["errors"] > before

    try:
        context.until(is_seen, SEEN_WITHIN_S, f"a failed write at {point}")
        context.hit(fault, f"node {node_id} at {point}", fault.between(2, 0.2, 1.5))
    finally:
        # only the next incarnation repeats writes that a disk has refused
        _try_to_kill(context, node_id)
        context.cluster.start(node_id)


def _clock_jump(context: NodeContext, fault: Fault) -> None:
    node_id = fault.pick(0, context.cluster.node_ids)
    offset_ms = int(fault.between(1, -12, 12) * HOUR_MS)
    context.cluster.ask_faults(node_id, {"op": "clock", "offset_ms": offset_ms})
    seen_ms = offset_of(context.cluster.ask_faults(node_id, {"op": "counts"}))
    if abs(seen_ms - offset_ms) > 5_000:
        raise Failure(f"the clock of node {node_id} is off by {seen_ms} ms, not {offset_ms}")
    context.hit(fault, f"node {node_id} by {offset_ms // 1000} s", fault.between(2, 0.5, 3.0))
    _heal_inside(context, node_id)


def _heal_inside(context: NodeContext, node_id: int) -> None:
    context.cluster.ask_faults(node_id, {"op": "heal"})


def _is_down(context: NodeContext, node_id: int) -> bool:
    return context.cluster.node(node_id).find() is None


NODE_ACTIONS: dict[str, Action] = {
    "kill": _kill,
    "kill-leader": _kill,
    "kill-transaction-coordinator": _kill,
    "kill-group-coordinator": _kill,
    "kill-controller": _kill,
    "kill-all": _kill_all,
    "die-at-a-moment": _die_at_a_moment,
    "pause": _pause,
    "stutter": _stutter,
    "restart": _restart,
    "wipe": _wipe,
    "disk-full": _disk,
    "disk-error": _disk,
    "clock-jump": _clock_jump,
}

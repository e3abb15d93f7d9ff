"""What the schedule does to nodes. Only this lane ends, starts or stops them.

A node that ends although nobody asked it to is a failure of the run (`Stage.broken`).
"""

import contextlib
import errno
import threading

from ..cluster.failure import Failure
from ..faults.node_faults import offset_of
from ..faults.schedule import Planned
from .load.settings import APPEND
from .stage import Action, Fault, Stage

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
LEVEL_S = 1.0  # in this time those who stay have all that the leaving node has acknowledged
HOUR_MS = 3_600_000


def ensure_all_run(stage: Stage) -> None:
    """Start what is down, resume what is paused; between two faults nothing should be."""
    for status in stage.cluster.status():
        if status.state == "paused":
            stage.cluster.resume(status.node_id)
        elif status.state == "down":
            code = stage.cluster.node(status.node_id).exit_code()
            stage.broken.append(f"node {status.node_id} ended by itself (exit code {code})")
            stage.cluster.start(status.node_id)


def _kill(stage: Stage, planned: Planned, fault: Fault) -> None:
    _kill_node(stage, planned, fault, planned.pick(0, stage.cluster.node_ids))


def _kill_leader(stage: Stage, planned: Planned, fault: Fault) -> None:
    partition = planned.pick(0, range(stage.settings.append_partitions))
    _kill_node(stage, planned, fault, stage.cluster.leader(APPEND, partition))


def _kill_transaction_coordinator(stage: Stage, planned: Planned, fault: Fault) -> None:
    name = planned.pick(0, stage.transactional_ids)
    _kill_node(stage, planned, fault, stage.cluster.coordinator("txn", name))


def _kill_group_coordinator(stage: Stage, planned: Planned, fault: Fault) -> None:
    node_id = stage.cluster.coordinator("group", stage.settings.group)
    _kill_node(stage, planned, fault, node_id)


def _kill_controller(stage: Stage, planned: Planned, fault: Fault) -> None:
    _kill_node(stage, planned, fault, stage.cluster.controller())


def _kill_node(stage: Stage, planned: Planned, fault: Fault, node_id: int) -> None:
    stage.cluster.kill(node_id)
    fault.hit(f"node {node_id}")
    stage.sleep(planned.between(1, 0.1, 1.2 * stage.session_s))
    stage.cluster.start(node_id)


def _kill_all(stage: Stage, planned: Planned, fault: Fault) -> None:
    nodes = stage.cluster.node_ids
    killing = [threading.Thread(target=_killed, args=(stage, node)) for node in nodes]
    for thread in killing:
        thread.start()
    for thread in killing:
        thread.join()
    if any(status.state != "down" for status in stage.cluster.status()):
        raise Failure("not all nodes were down at once")
    fault.hit("all nodes")
    stage.sleep(planned.between(1, 0.0, 0.5))
    first = planned.pick(2, range(len(nodes)))
    stage.cluster.start_all([*nodes[first:], *nodes[:first]])


def _killed(stage: Stage, node_id: int) -> None:
    with contextlib.suppress(Failure):
        stage.cluster.kill(node_id)


def _die_at_a_moment(stage: Stage, planned: Planned, fault: Fault) -> None:
    node_id = planned.pick(0, stage.cluster.node_ids)
    moment = planned.pick(1, MOMENTS)
    stage.cluster.ask_faults(node_id, {"op": "die", "point": moment})
    try:
        stage.until(lambda: _is_down(stage, node_id), SEEN_WITHIN_S, f"a death at {moment}")
    except Failure:
        with contextlib.suppress(Failure):  # it may die at this very moment
            _heal_inside(stage, node_id)
        if not _is_down(stage, node_id):
            raise
    fault.hit(f"node {node_id} at {moment}")
    stage.sleep(planned.between(2, 0.1, stage.session_s))
    stage.cluster.start(node_id)


def _pause(stage: Stage, planned: Planned, fault: Fault) -> None:
    node_id = planned.pick(0, stage.cluster.node_ids)
    stage.cluster.pause(node_id)
    try:
        fault.hit(f"node {node_id}")
        stage.sleep(stage.session_s * planned.between(1, 1.1, 2.0))
    finally:
        stage.cluster.resume(node_id)


def _stutter(stage: Stage, planned: Planned, fault: Fault) -> None:
    node_id = planned.pick(0, stage.cluster.node_ids)
    for _ in range(int(planned.between(1, 8, 20))):
        stage.cluster.pause(node_id)
        stage.sleep(0.08)
        stage.cluster.resume(node_id)
        fault.hit(f"node {node_id}")
        stage.sleep(0.04)


def _restart(stage: Stage, planned: Planned, fault: Fault) -> None:
    node_id = planned.pick(0, stage.cluster.node_ids)
    stage.cluster.stop(node_id)
    fault.hit(f"node {node_id}")
    stage.sleep(planned.between(1, 0.0, 1.0))
    stage.cluster.start(node_id)


def _wipe(stage: Stage, planned: Planned, fault: Fault) -> None:
    """Only while all others have everything: to wipe one of two copies is to lose data."""
    node_id = planned.pick(0, stage.cluster.node_ids)
    with stage.links_whole():
        stage.until(lambda: _all_in_sync(stage), IN_SYNC_WITHIN_S, "all replicas in sync")
        stage.cluster.stop(node_id)
        try:
            stage.sleep(LEVEL_S)
            stage.cluster.wipe(node_id)
            fault.hit(f"node {node_id}")
        finally:
            stage.cluster.start(node_id)
        stage.until(lambda: _all_in_sync(stage), IN_SYNC_WITHIN_S, "the wiped node in sync")


def _disk(stage: Stage, planned: Planned, fault: Fault) -> None:
    node_id = planned.pick(0, stage.cluster.node_ids)
    point, code = planned.pick(1, DISK_POINTS), DISK_ERRORS[fault.kind]
    before = stage.cluster.ask_faults(node_id, {"op": "counts"})["errors"]
    stage.cluster.ask_faults(node_id, {"op": "disk", "point": point, "errno": code})

    def is_seen() -> bool:
        if _is_down(stage, node_id):
            return True  # it cannot go on without what it could not write
        return stage.cluster.ask_faults(node_id, {"op": "counts"})["errors"] > before

    try:
        stage.until(is_seen, SEEN_WITHIN_S, f"a failed write at {point}")
        fault.hit(f"node {node_id} at {point}")
        stage.sleep(planned.between(2, 0.2, 1.5))
    finally:
        # what a disk has refused is tried again by the next incarnation only
        with contextlib.suppress(Failure):
            stage.cluster.kill(node_id)
        stage.cluster.start(node_id)


def _clock_jump(stage: Stage, planned: Planned, fault: Fault) -> None:
    node_id = planned.pick(0, stage.cluster.node_ids)
    offset_ms = int(planned.between(1, -12, 12) * HOUR_MS)
    stage.cluster.ask_faults(node_id, {"op": "clock", "offset_ms": offset_ms})
    seen_ms = offset_of(stage.cluster.ask_faults(node_id, {"op": "counts"}))
    if abs(seen_ms - offset_ms) > 5_000:
        raise Failure(f"the clock of node {node_id} is off by {seen_ms} ms, not {offset_ms}")
    fault.hit(f"node {node_id} by {offset_ms // 1000} s")
    stage.sleep(planned.between(2, 0.5, 3.0))
    _heal_inside(stage, node_id)


def _heal_inside(stage: Stage, node_id: int) -> None:
    stage.cluster.ask_faults(node_id, {"op": "heal"})


def _is_down(stage: Stage, node_id: int) -> bool:
    return stage.cluster.node(node_id).find() is None


def _all_in_sync(stage: Stage) -> bool:
    described = stage.cluster.ask(lambda admin: admin.describe_topics())
    return all(p.leader >= 0 and len(p.isr) >= len(p.replicas) for p in described)


NODE_ACTIONS: dict[str, Action] = {
    "kill": _kill,
    "kill-leader": _kill_leader,
    "kill-transaction-coordinator": _kill_transaction_coordinator,
    "kill-group-coordinator": _kill_group_coordinator,
    "kill-controller": _kill_controller,
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

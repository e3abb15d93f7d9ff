"""A legal consumer group (KIP-848) for the model cluster, and members that record their state.

The coordinator gives a partition to one member at a time. A member that must revoke a partition
keeps its epoch until it has reported the revocation. A member that dies keeps its partitions until
its session ends. A stopped member takes an assigned partition later, perhaps after the end of its
session.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncelog.proof.judge.history.rows import Handle
from oncelog.proof.judge.history.schema import NONE, OpOutcome

if TYPE_CHECKING:
    from .model_cluster import ModelCluster

Steps = Generator[None, None, None]
GROUP = "shared"


@dataclass(slots=True)
class ModelGroup:
    """The state of the coordinator, with member epochs and the owner of each partition."""

    partitions: list[str]
    epoch: int = 0
    members: dict[int, int] = field(default_factory=dict[int, int])
    held: dict[str, int] = field(default_factory=dict[str, int])

    def join(self, process: int) -> int:
        self.epoch += 1
        self.members[process] = self.epoch
        return self.epoch

    def remove(self, process: int) -> None:
        self.epoch += 1
        del self.members[process]
        self.held = {key: who for key, who in self.held.items() if who != process}

    def wanted(self, process: int) -> set[str]:
        order = sorted(self.members)
        return set(self.partitions[order.index(process) :: len(order)])

    def heartbeat(self, process: int, owned: set[str]) -> tuple[int, set[str]]:
        """Handle a heartbeat with owned partitions. Return the member's epoch and assignment."""
        wanted = self.wanted(process)
        mine = {key for key, who in self.held.items() if who == process}
        for key in mine - wanted - owned:
            del self.held[key]
        if (mine - wanted) & owned:
            return self.members[process], mine & wanted  # it still has partitions to give up
        self.members[process] = self.epoch
        for key in wanted:
            self.held.setdefault(key, process)
        return self.epoch, {key for key, who in self.held.items() if who == process}


def shared_reader(cluster: "ModelCluster") -> Steps:
    """Run one group member after another. Some answers are lost, and some members die silently."""
    rng, recorder, group = cluster.rng, cluster.recorder, cluster.shared
    while True:
        process = recorder.new_process()
        owner = f"member {process}"
        epoch, said, said_ns = NONE, 0, cluster.now_ns
        told = group.join(process)
        open_: dict[str, tuple[Handle, int]] = {}
        for _ in range(rng.randrange(10, 50)):
            yield
            if rng.random() < 0.9:  # else the answer is lost
                if told != epoch or said == 0:
                    row = process, GROUP, owner, said, told, said_ns
                    recorder.add("member_epochs", *row, cluster.now_ns)
                    epoch = told
                for handle, _ in open_.values():
                    recorder.tenure_confirmed(handle, said_ns)
            yield
            if open_ and rng.random() < 0.6:
                yield from _commit(cluster, process, rng.choice(sorted(open_)), open_)
            said, said_ns = epoch, cluster.now_ns
            yield
            told, given = group.heartbeat(process, set(open_))
            asked_ns = said_ns
            for key in sorted(open_.keys() - given):
                recorder.tenure_ended(open_.pop(key)[0])
            if rng.random() < 0.9 and told >= epoch:
                given_ns, added = cluster.now_ns, sorted(given - open_.keys())
                is_over = bool(added) and rng.random() < 0.05  # the process was stopped too long
                reads_late = rng.random() < 0.5  # the process was stopped before it read the answer
                if is_over:
                    group.remove(process)
                for _ in range(rng.randrange(10, 50) if is_over else rng.randrange(2)):
                    yield
                if reads_late:
                    given_ns = cluster.now_ns
                for key in added:
                    told_at = asked_ns, given_ns
                    handle = recorder.tenure_begun(process, GROUP, key, owner, told, told_at)
                    open_[key] = handle, told
                if is_over:
                    break
        if rng.random() < 0.5:  # the member leaves, otherwise its session ends
            for handle, _ in open_.values():
                recorder.tenure_ended(handle)
        yield
        if process in group.members:
            group.remove(process)


def _commit(
    cluster: "ModelCluster", process: int, partition: str, tenures: dict[str, tuple[Handle, int]]
) -> Steps:
    recorder, rng = cluster.recorder, cluster.rng
    offset = cluster.committed.get((GROUP, partition), 0) + rng.randrange(1, 4)
    row = process, GROUP, tenures[partition][1], partition, offset
    handle = recorder.group_commit_invoked(*row)
    yield
    if cluster.shared.held.get(partition) != process:
        recorder.group_commit_ended(handle, OpOutcome.FAIL, 1, "FencedMemberEpoch")
        return
    cluster.committed[GROUP, partition] = offset
    yield
    if rng.random() < 0.9:
        recorder.group_commit_ended(handle, OpOutcome.OK, 1)

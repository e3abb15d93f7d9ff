"""Faults of simulated disks, which are slow, full, failing, damaged, or stop during a write."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from .outcome import Fault
from .virtual_cluster import VirtualCluster
from .virtual_disk import REAL
from .virtual_node import VirtualNode

EXCUSED_S = 1.5  # a node may end this long after a disk error because of that error
POWER_TRIES, POWER_TRY_S = 40, 0.05
FLIPS = 8  # bits, each in another file


class DiskFaults:
    """The base class of Conductor that executes the faults of disks."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.flipped: dict[Path, bytes] = {}  # files that we have damaged

    def _nodes(self, target: str) -> list[VirtualNode]:
        raise NotImplementedError

    def _later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        raise NotImplementedError

    def _may_lose_power(self, node: VirtualNode) -> bool:
        raise NotImplementedError

    def remove_flipped(self) -> None:
        """Remove the snapshots that still have a flipped bit, since the judge would report them."""
        for file, content in self.flipped.items():
            if file.exists() and file.read_bytes() == content:
                REAL["unlink"](file)

    def _crash_io(self, fault: Fault, power: bool = False) -> bool:
        """Kill the process, or cut the power, after `fault.amount` changes of its disk."""
        node = next((n for n in self._nodes(fault.target) if n.is_alive), None)
        if node is None:
            return False

        def last() -> bool:
            if power and not self._may_lose_power(node):
                return False
            node.kill(power=power)
            self._later(fault.seconds, node.start)
            return True

        node.disk.operations_left = int(fault.amount)
        node.disk.on_last_operation = last
        return True

    def _power_io(self, fault: Fault) -> bool:
        return self._crash_io(fault, power=True)

    def _power_truncation(self, fault: Fault) -> None:
        """Let a machine lose power soon after a truncated log has grown again.

        The power is cut as soon as a segment has begun at the truncation point and an older segment
        is not synced.
        """
        rng = self.cluster.random

        def grown(node: VirtualNode) -> None:
            self._later(rng.uniform(0.0, 0.3), lose_power, node, node.loop, POWER_TRIES)

        def lose_power(node: VirtualNode, process: object, tries_left: int) -> None:
            if node.loop is not process or not node.is_alive:
                return
            if self._may_lose_power(node):
                node.kill(power=True)
                self._later(fault.seconds, node.start)
            elif tries_left:
                self._later(POWER_TRY_S, lose_power, node, process, tries_left - 1)

        for node in self.cluster.nodes.values():
            node.disk.on_regrowth = partial(grown, node)

    def _slow_disk(self, fault: Fault) -> bool:
        node = next((n for n in self._nodes(fault.target) if n.loop is not None), None)
        if node is None or node.loop is None:
            return False
        node.loop.slowness = fault.amount
        self._later(fault.seconds, setattr, node.loop, "slowness", 1.0)
        return True

    def _disk_full(self, fault: Fault) -> bool:
        return self._hurt_disk(fault, "is_full", True, False)

    def _sync_error(self, fault: Fault) -> bool:
        return self._hurt_disk(fault, "sync_errors", 1, 0)

    def _hurt_disk(self, fault: Fault, name: str, during: object, after: object) -> bool:
        """Set the disk's attribute `name` to `during`, then to `after`, and restart the node."""
        node = next((n for n in self._nodes(fault.target) if n.is_alive), None)
        if node is None:
            return False
        setattr(node.disk, name, during)
        node.is_hurt = True

        def repair() -> None:
            setattr(node.disk, name, after)
            node.kill()
            node.start()

        self._later(fault.seconds, repair)
        return True

    def _disk_errors(self, fault: Fault) -> bool:
        """Let operations of the disk fail for a while. Afterwards a node that ended is started."""
        node = next((n for n in self._nodes(fault.target) if n.is_serving), None)
        if node is None:
            return False
        node.disk.error = int(fault.amount)
        node.is_hurt = node.was_hurt = True

        def end() -> None:
            node.disk.error = 0
            self._later(EXCUSED_S, excused)

        def excused() -> None:
            node.is_hurt = node.disk.is_failing  # by another fault
            if not node.is_alive:
                node.start()

        self._later(fault.seconds, end)
        return True

    def _flip(self, fault: Fault) -> bool:
        """Flip a bit in each of a few producer snapshots while the node is down."""
        node = next((n for n in self._nodes(fault.target) if n.is_alive), None)
        if node is None:
            return False
        node.kill()
        files = sorted(Path(node.disk.path).glob("*-[0-9]/[0-9]*.snapshot"))
        rng = self.cluster.random
        for file in rng.sample(files, min(len(files), FLIPS)):
            content = bytearray(file.read_bytes())
            if content:
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                file.write_bytes(content)
                self.flipped[file] = bytes(content)
        self._later(fault.seconds, node.start)
        return True

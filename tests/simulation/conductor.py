"""Execute the faults of a schedule in a simulated cluster, and undo them.

A fault is skipped if the cluster does not promise to survive it in its present state. For example,
the power of one machine is cut only while all others have every record (docs/ARCHITECTURE.md, "What
survives what").
"""

from collections.abc import Callable
from typing import Any

from oncelog.proof.judge.history.recorder import Recorder
from oncelog.replication.messages import PeerMessage

from .disk_faults import DiskFaults
from .fault_schedule import MUTE
from .file_damage import FileDamage
from .invariants import controls, unusable
from .outcome import Fault
from .virtual_cluster import VirtualCluster
from .virtual_loop import ProcessLoop
from .virtual_node import VirtualClient, VirtualNode

GROUP_TOPIC = "__consumer_offsets"
STUTTER_S = (0.05, 0.25)
# The kinds of requests that are delayed: any, or one that is rare among all.
MARKERS = PeerMessage.WRITE_TRANSACTION_MARKERS
KEPT = (0, MARKERS, MARKERS, PeerMessage.VERIFY_TRANSACTION, PeerMessage.ALTER_PARTITION)
BROKEN, BROKEN_WITHIN_S = 0.7, 0.3  # of a kept request's connections


class Conductor(DiskFaults, FileDamage):
    """Executes the faults of one run.

    `clients` has the client processes c1 and c2. `replace` restarts a killed client. The method of
    a kind of fault returns False if the fault is skipped.
    """

    def __init__(
        self,
        cluster: VirtualCluster,
        recorder: Recorder,
        clients: dict[str, VirtualClient],
        replace: Callable[[str], None],
    ) -> None:
        DiskFaults.__init__(self, cluster)
        FileDamage.__init__(self, cluster)
        self.recorder = recorder
        self.clients, self._replace = clients, replace
        self.made: list[Fault] = []
        self.left_out: list[Fault] = []
        self._loop = ProcessLoop(cluster.timeline, 0)
        self._is_over = False

    def plan(self, faults: list[Fault]) -> None:
        """Schedule these faults. `fault_schedule.require_possible` must have checked them."""
        for fault in faults:
            self._loop.call_later(fault.at_s, self._make, fault)

    def heal(self) -> None:
        """End all faults now, and start every node that is down.

        Nodes that a fault of their disk has hurt are restarted.
        """
        self._is_over = True
        cluster = self.cluster
        cluster.wires.heal()
        self.mend_start()
        for node in cluster.nodes.values():
            node.disk.is_full, node.disk.sync_errors = False, 0
            node.disk.operations_left, node.disk.error = None, 0
            node.on_point = node.disk.on_regrowth = None
            if node.loop is not None:
                node.loop.slowness = 1.0
                node.loop.resume()
            if node.is_hurt or (node.was_hurt and _needs_restart(node)):
                node.kill()
            node.start()

    def is_whole(self) -> bool:
        """Return whether each replica of each partition is alive and in sync."""
        nodes = self.cluster.nodes.values()
        if any(not node.is_serving or node.is_hurt for node in nodes):
            return False
        if any(node.was_hurt and _needs_restart(node) for node in nodes):
            return False
        state = next((n.broker.state for n in nodes if n.broker and controls(n)), None)
        if state is None:
            return False
        epochs = {n.node_id: n.broker.liveness.broker_epoch for n in nodes if n.broker}
        known = {b.node_id: b.broker_epoch for b in state.brokers.values() if not b.is_fenced}
        return epochs == known and all(
            set(p.isr) == set(p.replicas) and p.leader >= 0
            for topic in state.topics.values()
            for p in topic.partitions
        )

    # -- inside

    def _make(self, fault: Fault) -> None:
        if self._is_over:
            return
        self.cluster.timeline.note(8, len(self.made), len(fault.kind))
        done = getattr(self, "_" + fault.kind.replace("-", "_"))(fault)
        if done is False:
            self.left_out.append(fault)
            self._say(f"left out: {fault}")
            return
        self._say(f"FAULT {fault}")
        self.made.append(fault)
        began_ns = self.recorder.now_ns()
        times = began_ns, began_ns + int(fault.seconds * 1e9)
        self.recorder.add("faults", fault.kind, fault.target, *times, self.cluster.seed)

    def _say(self, words: str) -> None:
        if self.cluster.on_log is not None:
            self.cluster.on_log(f"{self.cluster.timeline.now - 1000:9.3f} - {words}")

    def _later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        def end() -> None:
            if not self._is_over:
                call(*arguments)

        self._loop.call_later(seconds, end)

    def _nodes(self, target: str) -> list[VirtualNode]:
        nodes = self.cluster.nodes
        if target.replace(",", "").isdigit():
            return [nodes[int(each)] for each in target.split(",")]
        holder = None
        serving = self.cluster.serving
        if target == "controller":
            holder = next((n for n in serving if controls(n)), None)
        elif target == "transactions":
            holder = next((n for n in serving if _leads_shard(n)), None)
        elif serving:
            name = GROUP_TOPIC if target == "group" else "append"
            state = serving[0].broker.state  # type: ignore[union-attr]
            found = state.partition(name, 0)
            holder = None if found is None else nodes.get(found.leader)
        return [holder] if holder is not None else []

    def _kill(self, fault: Fault, power: bool = False) -> bool:
        victims = [node for node in self._nodes(fault.target) if node.is_alive]
        for node in victims:
            node.kill(power=power)
            self._later(fault.seconds, node.start)
        return bool(victims)

    def _kill_all(self, fault: Fault, power: bool = False) -> None:
        rng = self.cluster.random
        for node in self.cluster.nodes.values():
            node.kill(power=power)
            self._later(fault.seconds * rng.uniform(0.5, 1.0), node.start)

    def _power_all(self, fault: Fault) -> None:
        self._kill_all(fault, power=True)

    def _power(self, fault: Fault) -> bool:
        may = all(self._may_lose_power(node) for node in self._nodes(fault.target))
        return may and self._kill(fault, power=True)

    def _may_lose_power(self, node: VirtualNode) -> bool:
        return self.cluster.shape.durable or self._others_have_everything(node)

    def _others_have_everything(self, node: VirtualNode) -> bool:
        """Return whether all other nodes have every record of this node.

        It is False while a replica is not in sync.
        Records that are not committed count as well, since a fetch request that this node has sent
        may still commit them.
        """
        if not self.is_whole():
            return False
        others = [n for n in self.cluster.nodes.values() if n is not node]
        for hosted in node.broker.replicas if node.broker is not None else ():
            for other in others:
                assert other.broker is not None
                theirs = other.broker.replicas.get(hosted.topic, hosted.index)
                if theirs is not None and theirs.log.log_end_offset < hosted.log.log_end_offset:
                    return False
        return True

    def _crash_point(self, fault: Fault) -> bool:
        """Kill the process when it has passed `fault.amount` fault points."""
        node = next((n for n in self._nodes(fault.target) if n.is_alive), None)
        if node is None:
            return False
        left = int(fault.amount)

        def passed(_number: int, _name: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                node.on_point = None
                node.kill()
                self._later(fault.seconds, node.start)
                node.stop_here()

        node.on_point = passed
        return True

    def _pause(self, fault: Fault) -> bool:
        victims = [n for n in self._nodes(fault.target) if n.loop is not None and not n.is_paused]
        for node in victims:
            assert node.loop is not None
            node.loop.pause()
            self._later(fault.seconds, node.loop.resume)
        return bool(victims)

    def _stutter(self, fault: Fault) -> bool:
        node = next((n for n in self._nodes(fault.target) if n.loop is not None), None)
        if node is None or node.loop is None:
            return False
        loop, rng = node.loop, self.cluster.random
        end = self.cluster.timeline.now + fault.seconds

        def halt() -> None:
            if self.cluster.timeline.now < end and loop.is_alive and not self._is_over:
                loop.pause()
                pause = rng.uniform(*STUTTER_S)
                self._later(pause, loop.resume)
                self._later(pause + rng.uniform(*STUTTER_S), halt)

        halt()
        return True

    def _links(self, target: str) -> list[tuple[int, int]]:
        links = []
        for each in filter(None, target.split(",")):
            one, _, other = each.partition(">")
            links.append((self._number(one), self._number(other)))
        return [link for link in links if link[0] != link[1]]

    def _number(self, name: str) -> int:
        return self.clients[name].number if name.startswith("c") else int(name)

    def _cut(self, fault: Fault) -> bool:
        links = self._links(fault.target)
        self.cluster.wires.cut(links)
        self._later(fault.seconds, self.cluster.wires.mend, links)
        return bool(links)

    _cut_clients = _cut

    def _slow_links(self, fault: Fault) -> bool:
        links = self._links(fault.target)
        self.cluster.wires.slow(links, fault.amount)
        self._later(fault.seconds, self.cluster.wires.slow, links, 0.0)
        return bool(links)

    _hold_link = _slow_links

    def _hold_client(self, fault: Fault) -> bool:
        for source, target in self._links(fault.target):
            self.cluster.sockets.hold(source, target, fault.seconds, fault.amount or 1.0)
        return True

    def _reset_links(self, fault: Fault) -> bool:
        numbers = [int(each) for each in fault.target.split(",")]
        if len(numbers) == 2:
            self.cluster.exchange.reset(*numbers)
        return len(numbers) == 2

    def _reset_clients(self, fault: Fault) -> None:
        one, other = fault.target.split(",")
        self.cluster.sockets.reset(self._number(one), self._number(other))

    def _noise(self, fault: Fault) -> None:
        wires = self.cluster.wires
        wires.loss = wires.repetition = fault.amount
        wires.disorder = 4 * fault.amount

        def end() -> None:
            wires.loss = wires.repetition = wires.disorder = 0.0

        self._later(fault.seconds, end)

    def _keep(self, fault: Fault) -> bool:
        """Delay some requests of a node, and in most cases break their connection meanwhile."""
        node = next((n for n in self._nodes(fault.target) if n.is_alive), None)
        if node is None:
            return False
        cluster, source = self.cluster, node.node_id

        def on_kept(target: int) -> None:
            if cluster.random.random() < BROKEN:
                after_s = BROKEN_WITHIN_S * cluster.random.random()
                self._later(after_s, cluster.exchange.reset, source, target)

        until = cluster.timeline.now + fault.seconds
        kind = cluster.random.choice(KEPT)
        cluster.wires.keep(source, kind, int(fault.amount), until, on_kept)
        return True

    def _one_way(self, fault: Fault) -> bool:
        """Cut all links to a node, or all links from the node if the fault's amount is MUTE."""
        node = next((n for n in self._nodes(fault.target) if n.is_alive), None)
        if node is None:
            return False
        links = [(other, node.node_id) for other in self.cluster.ids if other != node.node_id]
        if fault.amount == MUTE:
            links = [(one, other) for other, one in links]
        self.cluster.wires.cut(links)
        self._later(fault.seconds, self.cluster.wires.mend, links)
        return bool(links)

    def _clock(self, fault: Fault) -> bool:
        for node in self._nodes(fault.target):
            node.clock.skew_ms = int(fault.amount)  # two jumps would exceed the limit of brokers
        return True

    def _stop(self, fault: Fault) -> bool:
        """Stop a node by SIGTERM, and start it again later."""
        node = next((n for n in self._nodes(fault.target) if n.is_serving), None)
        if node is None:
            return False

        def ended() -> None:
            if self._is_over:  # the node was still stopping when all faults were healed
                node.start()
            else:
                self._later(fault.seconds, node.start)

        node.stop(then=ended)
        return True

    def _kill_client(self, fault: Fault) -> bool:
        self.clients[fault.target].kill()
        self._later(fault.seconds, self._replace, fault.target)
        return True

    def _wipe(self, fault: Fault) -> bool:
        """Replace a machine by one with an empty disk, if all other nodes have its records."""
        node = next((n for n in self._nodes(fault.target) if n.is_alive), None)
        if node is None or not self._others_have_everything(node) or len(self.cluster.nodes) < 3:
            return False
        node.kill(power=True)
        self.cluster.disks.wipe(node.node_id)
        self._later(fault.seconds, node.start)
        return True


def _needs_restart(node: VirtualNode) -> bool:
    """Return whether a log of the node has failed or could not be opened."""
    broker: Any = node.broker
    replicas = getattr(broker, "replicas", None) or ()
    return any(hosted.log.is_failed for hosted in replicas) or bool(unusable(node))


def _leads_shard(node: VirtualNode) -> bool:
    engine = getattr(node.broker, "engine", None)
    return engine is not None and any(g.is_leader for i, g in engine.groups.items() if i)

"""The controller of the simulation: brokers, one record for each partition, and their rules."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from oncelog.replication.isr_change import UNKNOWN_BROKER_EPOCH, IsrChange
from oncelog.wire.errors import ErrorCode

Key = tuple[bytes, int]


@dataclass(frozen=True)
class Record:
    """A partition as the metadata has it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Metadata:
    live: dict[int, int]  # unfenced brokers and their epochs
    partitions: dict[Key, Record]


@dataclass
class Controller:
    """One atomic log of versions; nodes read it late, each at its own pace."""

    min_insync_replicas: int
    on_elected: Callable[[Key, int], None]
    checks_broker_epoch: bool = True
    epochs: dict[int, int] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    partitions: dict[Key, Record] = field(default_factory=dict)
    history: list[Metadata] = field(default_factory=list)
    next_broker_epoch: int = 100

    def create(self, key: Key, replicas: Iterable[int]) -> None:
        ids = tuple(replicas)
        self.partitions[key] = Record(ids, ids, ids[0])
        self._publish()

    def register(self, node: int, lost_power: bool) -> int:
        """A death and a birth; what a power cut left behind is not trusted."""
        self.fenced.add(node)
        self._death(node)
        if lost_power:
            for key, record in self.partitions.items():
                others = (set(record.isr) | record.elr) - {node}
                if node in record.elr and others:
                    self._put(key, replace(record, elr=record.elr - {node}))
        self.next_broker_epoch += 1
        self.epochs[node] = self.next_broker_epoch
        self._publish()
        return self.next_broker_epoch

    def unfence(self, node: int, broker_epoch: int) -> None:
        if self.epochs.get(node) == broker_epoch and node in self.fenced:
            self.fenced.discard(node)
            for key in self.partitions:
                self._elect_if_leaderless(key)
            self._publish()

    def fence(self, node: int, broker_epoch: int) -> None:
        if self.epochs.get(node) == broker_epoch and node not in self.fenced:
            self.fenced.add(node)
            self._death(node)
            self._publish()

    def alter(
        self, key: Key, node: int, broker_epoch: int, change: IsrChange
    ) -> tuple[int, Record]:
        """Compare and set; (error, the record as it is now)."""
        record = self.partitions[key]
        if self.epochs.get(node) != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH, record
        if change.leader_epoch != record.leader_epoch or record.leader != node:
            return ErrorCode.FENCED_LEADER_EPOCH, record
        if change.partition_epoch != record.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION, record
        for member in change.isr:
            current = self.epochs.get(member.node_id)
            given = member.broker_epoch if self.checks_broker_epoch else UNKNOWN_BROKER_EPOCH
            if member.node_id in self.fenced or given not in (current, UNKNOWN_BROKER_EPOCH):
                return ErrorCode.INELIGIBLE_REPLICA, record
        isr = tuple(n for n in record.replicas if n in change.node_ids)
        elr = (
            frozenset()
            if len(isr) >= self.min_insync_replicas
            else record.elr | (set(record.isr) - set(isr))
        )
        self._put(key, replace(record, isr=isr, elr=elr - set(isr)))
        self._publish()
        return ErrorCode.NONE, self.partitions[key]

    def _death(self, node: int) -> None:
        for key, record in list(self.partitions.items()):
            if node in record.isr:
                isr = tuple(n for n in record.isr if n != node)
                short = len(isr) < self.min_insync_replicas
                elr = record.elr | {node} if short else frozenset()
                self._put(key, replace(record, isr=isr, elr=elr))
            record = self.partitions[key]
            if record.leader == node:
                self._put(key, replace(record, leader=-1, leader_epoch=record.leader_epoch + 1))
                self._elect_if_leaderless(key, bump=False)

    def _elect_if_leaderless(self, key: Key, bump: bool = True) -> None:
        record = self.partitions[key]
        if record.leader != -1:
            return
        pool = record.isr or tuple(n for n in record.replicas if n in record.elr)
        for node in pool:
            if node in self.epochs and node not in self.fenced:
                isr = record.isr or (node,)
                epoch = record.leader_epoch + bump
                elected = replace(
                    record, leader=node, leader_epoch=epoch, isr=isr, elr=record.elr - {node}
                )
                self._put(key, elected)
                self.on_elected(key, epoch)
                return

    def _put(self, key: Key, record: Record) -> None:
        epoch = self.partitions[key].partition_epoch + 1
        self.partitions[key] = replace(record, partition_epoch=epoch)

    def _publish(self) -> None:
        live = {n: e for n, e in self.epochs.items() if n not in self.fenced}
        self.history.append(Metadata(live, dict(self.partitions)))

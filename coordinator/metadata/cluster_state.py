"""The cluster's metadata as a replicated state machine, to which every node applies the same log.

`apply` is total and deterministic. Any command, in any state, has the same result on every node and
raises no exception. Bytes that this release cannot decode raise MalformedCommand and change
nothing. The node must then end, or its state would differ from nodes that can decode the command.
`apply` reads no clock and draws no random number. The effects of the commands are in the files of
`rules/`, the rules of each partition in `elections`, the data in `cluster_tables`.

A command with an operation id is executed once. If the command is proposed again, because the first
result was lost, the answer is the first result.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...runtime.sliced_work import Steps, run_to_end
from ...wire.errors import KafkaError
from . import commands
from .cluster_model import Changes
from .cluster_snapshot import decode_tables, difference, discarding, encode_tables
from .cluster_tables import ClusterTables
from .commands import (
    AdvanceClock,
    AllocateProducerIds,
    Command,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeatures,
    decoding_of,
)
from .results import Result, decode_result, encoding_of
from .rules import (
    acls,
    brokers,
    clock,
    configs,
    credentials,
    features,
    partitions,
    quotas,
    reassignment,
    topics,
)

# Retries follow within seconds, in which a cluster makes at most a few dozen such operations.
OUTCOMES_MAX = 512
OUTCOMES_BYTES_MAX = 1 << 20

_RULES: dict[type, Callable[[ClusterTables, Any], Steps[Result]]] = {
    commands.SetClusterId: brokers.set_cluster_id,
    commands.SetDefaults: brokers.set_defaults,
    commands.UnfenceBroker: brokers.unfence_broker,
    commands.FenceBroker: brokers.fence_broker,
    commands.BeginControlledShutdown: brokers.begin_controlled_shutdown,
    commands.CreateTopics: topics.create_topics,
    commands.DeleteTopics: topics.delete_topics,
    commands.CreatePartitions: topics.create_partitions,
    commands.AlterConfigs: configs.alter_configs,
    commands.AlterPartition: partitions.alter_partition,
    commands.ElectLeaders: partitions.elect_leaders,
    commands.AlterPartitionReassignments: reassignment.alter_reassignments,
    commands.FailReplicas: brokers.fail_replicas,
    commands.CreateAcls: acls.create_acls,
    commands.DeleteAcls: acls.delete_acls,
    commands.AlterScramCredentials: credentials.alter_credentials,
    commands.AlterClientQuotas: quotas.alter_client_quotas,
}


def _raise(error: Exception) -> None:
    raise error


class ClusterState(ClusterTables):
    """The cluster's tables, which only commands and snapshots change.

    listener_failed: gets the exception of a listener of `on_change`. By default the exception is
    raised again, after the state is complete and the other listeners were called.
    """

    def __init__(
        self,
        *,
        listener_failed: Callable[[Exception], None] = _raise,
    ) -> None:
        super().__init__()
        self.version = 0  # changes whenever readers may find other values; see `apply_steps`
        self._listeners: list[Callable[[Changes], None]] = []
        self._listener_failed = listener_failed
        self._outcomes: dict[bytes, bytes] = {}
        self._outcomes_bytes = 0

    def on_change(self, callback: Callable[[Changes], None]) -> None:
        """Register a callback that gets the changes of each command or installed snapshot."""
        self._listeners.append(callback)

    def apply(self, command: bytes, index: int, term: int = 0) -> Result:
        """Apply the command at `index` in one step (see `apply_steps`)."""
        return run_to_end(self.apply_steps(command, index, term))

    def apply_steps(self, command: bytes, index: int, term: int = 0) -> Steps[Result]:
        """Apply the command at `index`, or raise MalformedCommand without any change.

        A command may affect thousands of partitions. A reader between two steps finds some
        partitions changed and others unchanged, but each partition consistent. Listeners are called
        at the end. `version` changes with each step, `revision` at the end.
        """
        result = yield from self._counting(self._decide(command, index))
        changes = self.take_changes()
        if changes:
            self.revision += 1
            self.version += 1
            self._notify(changes)
        return result

    def snapshot_steps(self) -> Steps[list[bytes]]:
        """Encode a snapshot of the present state. Commands may be applied between the steps."""
        return encode_tables(self, self._outcomes)

    def snapshot(self) -> bytes:
        return b"".join(run_to_end(self.snapshot_steps()))

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by the snapshot's in one step (see `restore_steps`)."""
        run_to_end(self.restore_steps(snapshot))

    def restore_steps(self, snapshot: bytes | memoryview) -> Steps[None]:
        """Replace the state by the snapshot's. Listeners are called with the differences.

        The state changes in one step, before which no command may be applied. Later steps only free
        the old state. Raises UnreadableSnapshot without any change.
        """
        tables, outcomes = yield from decode_tables(snapshot)
        changes = yield from difference(self, tables)
        before = ClusterTables()
        vars(before).update({name: vars(self)[name] for name in vars(before)})
        vars(self).update(vars(tables))
        self.version += 1
        self._outcomes = outcomes
        self._outcomes_bytes = sum(map(len, outcomes.values()))
        if changes:
            self._notify(changes)
        yield from discarding(before)

    def _counting(self, steps: Steps[Result]) -> Steps[Result]:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            self.version += 1
            yield

    def _decide(self, data: bytes, index: int) -> Steps[Result]:
        command, operation_id = yield from decoding_of(data)
        if known := self._outcomes.get(operation_id):
            yield  # a long result takes longer to decode than its command
            return decode_result(known)
        try:
            result = yield from self._execute(command, index)
        except KafkaError as error:
            result = Result(error=error.code, message=str(error))
        result = replace(result, index=index)
        if operation_id:
            self._remember(operation_id, (yield from encoding_of(result)))
        return result

    def _execute(self, command: Command, index: int) -> Steps[Result]:
        if isinstance(command, RegisterBroker):
            return (yield from brokers.register_broker(self, command, index))
        if isinstance(command, AllocateProducerIds):
            return brokers.allocate_producer_ids(self, command)
        if isinstance(command, UnregisterBroker):
            return brokers.unregister_broker(self, command)
        if isinstance(command, AdvanceClock):
            return clock.advance_clock(self, command)
        if isinstance(command, UpdateFeatures):
            return features.update_features(self, command, index)
        return (yield from _RULES[type(command)](self, command))

    def _remember(self, operation_id: bytes, outcome: bytes) -> None:
        self._outcomes[operation_id] = outcome
        self._outcomes_bytes += len(outcome)
        while len(self._outcomes) > OUTCOMES_MAX or (
            self._outcomes_bytes > OUTCOMES_BYTES_MAX and len(self._outcomes) > 1
        ):
            oldest = next(iter(self._outcomes))
            self._outcomes_bytes -= len(self._outcomes.pop(oldest))

    def _notify(self, changes: Changes) -> None:
        failures: list[Exception] = []
        for listener in self._listeners:
            try:
                listener(changes)
            except Exception as error:
                failures.append(error)
        for error in failures:
            self._listener_failed(error)

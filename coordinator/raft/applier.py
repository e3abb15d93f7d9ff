"""The state machine of a group, its applied index, and its snapshots.

A committed entry that cannot be applied (written by a newer release, or because of a bug) stops the
node, since skipping the entry would make this replica differ from the others. The entry stays in
the log, and the next start tries it again. A valid snapshot that cannot be decoded stops the node,
too. The file of a snapshot is durable before the log is truncated. A snapshot from the leader is
loaded before it replaces the node's own file. States are encoded and replaced in slices, and
joined, checked and written in an executor. No step on the event loop grows with the state.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from ...runtime.sliced_work import Steps
from .context import RaftHost
from .library import COMMAND, NO_OP
from .outcomes import CorruptJournal, InapplicableEntry, UnloadableSnapshot
from .wal.group_log import GroupLog
from .wal.records import RaftSnapshot, decode_snapshot, encode_snapshot
from .wal.recovery import Entry

# Called with the index, the term, and the result of the entry.
Applied = Callable[[int, int, Any], None]


class StateMachine(Protocol):
    """A replicated state machine, total and deterministic, without clock, randomness and files."""

    def apply(self, command: bytes, index: int, term: int) -> Any:
        """Execute a committed command.

        If the command was submitted on this node, its submitter gets the result. A refused command
        also has a result. An exception is raised only for a command that this release cannot
        decode, and ends the node.
        """
        ...

    def snapshot_steps(self) -> Steps[list[bytes]]:
        """Encode a snapshot of the present state. Commands may be applied between the steps."""
        ...

    def restore_steps(self, snapshot: bytes | memoryview) -> Steps[None]:
        """Replace the whole state by the snapshot's, or raise and leave the state unchanged.

        No command is applied meanwhile.
        """
        ...


@runtime_checkable
class SlicedStateMachine(StateMachine, Protocol):
    """A state machine with long commands, which are applied by `apply_steps` instead of `apply`."""

    def apply_steps(self, command: bytes, index: int, term: int) -> Steps[Any]:
        """Apply a command in steps. No other command changes the state between the steps."""
        ...


class Applier:
    """The applier, which applies committed entries in order, and writes and installs snapshots."""

    def __init__(
        self, engine: RaftHost, group_id: int, machine: StateMachine, logger: logging.Logger
    ) -> None:
        self._engine = engine
        self._group_id = group_id
        self._machine = machine
        self._apply_steps = machine.apply_steps if isinstance(machine, SlicedStateMachine) else None
        self._logger = logger
        self._snapshot_index = 0
        self._is_busy = False  # a snapshot is being written or installed, or is queued
        self._recovered: RaftSnapshot | None = None
        self._is_restoring = False
        self._is_applying = False
        self._after_apply: list[Callable[[], None]] = []
        self._log: GroupLog
        self.applied_index = 0
        self.has_decided = False  # True if a command was applied, now or before a snapshot

    def recover(self, log: GroupLog) -> None:
        """Read the snapshot and match it with the log (blocking), or raise CorruptJournal."""
        self._log = log
        disk = self._engine.disk
        name = disk.snapshot_name(self._group_id)
        data = disk.read_snapshot(self._group_id)
        if data is None:
            if log.base_index:
                problem = f"is missing, and the log begins after entry {log.base_index}"
                raise CorruptJournal(name, f"the snapshot {problem}")
            return
        snapshot = decode_snapshot(self._group_id, data)
        if snapshot is None:
            raise CorruptJournal(name, "the snapshot is damaged")
        if snapshot.last_index < log.base_index:
            problem = f"ends at {snapshot.last_index}, the log begins after {log.base_index}"
            raise CorruptJournal(name, f"the snapshot {problem}")
        if log.term_at(snapshot.last_index) != snapshot.last_term:
            # The snapshot came from a leader, and the process died before it recorded that.
            log.reset_to(snapshot.last_index, snapshot.last_term)
        self._recovered = snapshot

    def load_steps(self) -> Steps[None]:
        """Restore the state machine from the recovered snapshot, or raise UnloadableSnapshot."""
        snapshot, self._recovered = self._recovered, None
        if snapshot is not None:
            yield from self._restore_steps(snapshot, "read from this node's disk")
            self._snapshot_index = self.applied_index = snapshot.last_index

    @property
    def may_apply(self) -> bool:
        """Return whether entries may be applied.

        False while entries are applied, or a state is restored.
        """
        return not self._is_restoring and not self._is_applying

    def apply_up_to(self, last_index: int, applied: Applied, done: Callable[[], None]) -> None:
        """Apply the entries after `applied_index` up to `last_index`.

        Calls `applied` for each entry, and `done` at the end. Long entries continue in slices after
        this method has returned. InapplicableEntry ends the node.
        """
        self._is_applying = True

        def ended(_: None) -> None:
            self._is_applying = False
            done()
            waiting, self._after_apply = self._after_apply, []
            for call in waiting:
                call()

        entries = self._log.read(self.applied_index + 1, last_index)
        name = f"entries of Raft group {self._group_id}"
        self._engine.jobs.begin_steps(name, self._apply_all(entries, applied), ended)

    def apply(self, entry: bytes, index: int, term: int) -> Steps[Any]:
        """Apply the entry after `applied_index`, or raise InapplicableEntry."""
        assert index == self.applied_index + 1
        result = None
        if entry[:1] == COMMAND:
            self.has_decided = True
            self._engine.fault_point("raft.apply.before")
            try:
                if self._apply_steps is None:
                    result = self._machine.apply(entry[1:], index, term)
                else:
                    result = yield from self._apply_steps(entry[1:], index, term)
            except Exception as error:
                raise InapplicableEntry(self._group_id, index, term, entry, error) from error
            self._engine.fault_point("raft.apply.after")
        elif entry[:1] != NO_OP:
            unknown = ValueError(f"entries of kind {entry[:1].hex() or 'none'} are not known")
            raise InapplicableEntry(self._group_id, index, term, entry, unknown)
        self.applied_index = index
        return result

    def _apply_all(self, entries: list[Entry], applied: Applied) -> Steps[None]:
        for entry, index, term in entries:
            applied(index, term, (yield from self.apply(entry, index, term)))
            yield

    def _between_commands(self, call: Callable[[], None]) -> None:
        """Call the function as soon as no command is partly applied."""
        if self._is_applying:
            self._after_apply.append(call)
        else:
            call()

    def snapshot_if_due(self) -> None:
        """Write a snapshot if the log has grown enough since the last one."""
        settings = self._engine.settings
        entries = self.applied_index - self._snapshot_index
        # The second rule requires new entries, or one huge entry would cause snapshots forever.
        if entries >= settings.snapshot_entries or (
            self._log.size_bytes > settings.snapshot_log_bytes and entries > 0
        ):
            self.make_snapshot()

    def make_snapshot(self, *, retain: bool = True) -> None:
        """Write a snapshot of the applied state, after queued snapshots of other groups.

        Then drop the entries that the snapshot includes, except the last few if `retain` is set.
        """
        if self._is_busy or self.applied_index <= self._log.base_index:
            return
        self._is_busy = True
        # Set even if the snapshot fails, to delay the next attempt.
        self._snapshot_index = self.applied_index
        self._engine.snapshots.add(
            lambda ended: self._between_commands(lambda: self._write_snapshot(retain, ended))
        )

    def release_segment(self) -> None:
        """Make the journal's oldest segment deletable, by a snapshot or by copying its entries."""
        if self._log.base_index < self.applied_index:
            self.make_snapshot(retain=False)
        elif self._log.size_bytes < self._engine.settings.segment_bytes // 4:
            self._log.repeat_to(self._engine.journal.unpin(self._group_id))

    def read_snapshot(self, loaded: Callable[[tuple[RaftSnapshot, bytes] | None], None]) -> None:
        """Read the snapshot file. Pass it to `loaded`, or None if it is missing or damaged."""

        def read() -> tuple[RaftSnapshot, bytes] | None:
            data = self._engine.disk.read_snapshot(self._group_id)
            snapshot = None if data is None else decode_snapshot(self._group_id, data)
            return None if data is None or snapshot is None else (snapshot, data)

        self._engine.jobs.run_blocking(read, loaded)

    def install(
        self, wanted: tuple[int, int], chunks: list[bytes], done: Callable[[bool], None]
    ) -> None:
        """Replace the state and the log by the leader's snapshot.

        wanted: the index and term of the snapshot. done: gets False if the snapshot is damaged, or
        cannot be installed now. The file is on disk before the state changes, and replaces the old
        file before the log is replaced.
        """
        if self._is_busy:
            done(False)  # the leader sends the snapshot again
            return
        self._is_busy = True
        disk, group_id = self._engine.disk, self._group_id

        def prepare() -> RaftSnapshot | None:
            data = b"".join(chunks)
            snapshot = decode_snapshot(group_id, data)
            if snapshot is None or snapshot[:2] != wanted:
                return None
            disk.prepare_snapshot(group_id, data)
            return snapshot

        def prepared(snapshot: RaftSnapshot | None) -> None:
            if snapshot is None or snapshot.last_index <= self.applied_index:
                self._is_busy = False
                # The log has reached the snapshot's index in the meantime.
                done(snapshot is not None)
                return
            self._is_restoring = True
            steps = self._restore_steps(snapshot, "sent by the leader")
            self._engine.jobs.run_steps(f"restore of Raft group {group_id}", steps, restored)

        def between(snapshot: RaftSnapshot | None) -> None:
            self._between_commands(lambda: prepared(snapshot))

        def restored(_: None) -> None:
            self._engine.jobs.run_blocking(lambda: disk.publish_snapshot(group_id), published)

        def published(_: None) -> None:
            index, term = wanted
            if self._log.term_at(index) == term:
                self._log.cut_to(index)
            else:
                self._log.reset_to(index, term)
            self._snapshot_index = self.applied_index = index
            self._is_busy = self._is_restoring = False
            done(True)

        self._engine.jobs.run_blocking(prepare, between)

    def _write_snapshot(self, retain: bool, ended: Callable[[], None]) -> None:
        index = self._snapshot_index = self.applied_index
        term = self._log.term_at(index)
        assert term is not None
        disk, group_id = self._engine.disk, self._group_id

        def steps() -> Steps[list[bytes] | None]:
            try:
                return (yield from cut)
            except Exception:
                self._logger.exception(
                    "the snapshot of Raft group %d failed, so its log is not truncated", group_id
                )
                return None

        def taken(pieces: list[bytes] | None) -> None:
            if pieces is None:
                self._is_busy = False
                ended()
            else:
                self._engine.jobs.run_blocking(lambda: write(pieces), written)

        def write(pieces: list[bytes]) -> None:
            snapshot = RaftSnapshot(index, term, b"".join(pieces))
            disk.prepare_snapshot(group_id, encode_snapshot(group_id, snapshot))
            disk.publish_snapshot(group_id)

        def written(_: None) -> None:
            self._is_busy = False
            retained = self._engine.settings.retained_entries if retain else 0
            self._log.cut_to(index - retained)
            if self._log.size_bytes > self._engine.settings.snapshot_log_bytes:
                self._log.cut_to(index)
            ended()

        cut = self._machine.snapshot_steps()
        self._engine.jobs.run_steps(f"snapshot of Raft group {group_id}", steps(), taken)

    def _restore_steps(self, snapshot: RaftSnapshot, origin: str) -> Steps[None]:
        try:
            yield from self._machine.restore_steps(snapshot.payload)
        except Exception as error:
            index = snapshot.last_index
            raise UnloadableSnapshot(self._group_id, index, origin, error) from error
        self.has_decided = True

"""The state machine of a group, how far it has come, and its snapshots.

A committed entry that cannot be applied here (a newer release wrote it, or there is a defect)
stops the node: to pass over it would let this replica differ from the others in silence. The
entry stays in the log, and the next start tries it again. The snapshot file is durable before the
log is cut; one that came from the leader is loaded before it replaces the own file, and a failed
load brings the old state back.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .group_log import GroupLog
from .library import COMMAND, NO_OP
from .outcomes import CorruptJournal, InapplicableEntry
from .records import Snapshot, decode_snapshot, encode_snapshot

if TYPE_CHECKING:
    from .engine import RaftEngine


class StateMachine(Protocol):
    """What a group replicates. Total and deterministic: no clock, no randomness, no files."""

    def apply(self, command: bytes, index: int, term: int) -> Any:
        """Carry out a committed command; the result goes to its submitter, if it is here.

        Refusing it is a result. Raise only for what this release cannot read: that ends the node.
        """
        ...

    def snapshot(self) -> bytes:
        """The whole state."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Replace the whole state; must leave it unchanged or replaced, or raise."""
        ...


class Applier:
    """Applies committed entries in order, each once, and writes and installs snapshots."""

    def __init__(
        self, engine: "RaftEngine", group_id: int, machine: StateMachine, logger: logging.Logger
    ) -> None:
        self._engine = engine
        self._group_id = group_id
        self._machine = machine
        self._logger = logger
        self._snapshot_index = 0
        self._is_writing = False
        self._loaded: Snapshot | None = None
        self._pristine = machine.snapshot()
        self._log: GroupLog
        self.applied_index = 0
        self.has_decided = False  # a command has been applied, also before a snapshot

    def recover(self, log: GroupLog) -> None:
        """Read the snapshot and fit it to the log (blocking); raises CorruptJournal."""
        self._log = log
        disk = self._engine.disk
        name = disk.snapshot_name(self._group_id)
        data = disk.read_snapshot(self._group_id)
        if data is None:
            if log.base_index:
                problem = f"is missing, and the log begins behind entry {log.base_index}"
                raise CorruptJournal(name, f"the snapshot {problem}")
            return
        snapshot = decode_snapshot(self._group_id, data)
        if snapshot is None:
            raise CorruptJournal(name, "the snapshot is damaged")
        if snapshot.last_index < log.base_index:
            problem = f"ends at {snapshot.last_index}, the log begins behind {log.base_index}"
            raise CorruptJournal(name, f"the snapshot {problem}")
        if log.term_at(snapshot.last_index) != snapshot.last_term:
            # It came from a leader, and the process died before it recorded that.
            log.reset_to(snapshot.last_index, snapshot.last_term)
        self._loaded = snapshot

    def begin(self) -> None:
        """Put the snapshot that was read into the state machine."""
        if self._loaded is not None:
            self._machine.restore(self._loaded.payload)
            self.has_decided = True
            self._snapshot_index = self.applied_index = self._loaded.last_index
            self._loaded = None

    def apply(self, entry: bytes, index: int, term: int) -> Any:
        """Apply the entry behind `applied_index`; raises InapplicableEntry."""
        assert index == self.applied_index + 1
        result = None
        if entry[:1] == COMMAND:
            self.has_decided = True
            self._engine.fault_point("raft.apply.before")
            try:
                result = self._machine.apply(entry[1:], index, term)
            except Exception as error:
                raise InapplicableEntry(self._group_id, index, term, entry, error) from error
            self._engine.fault_point("raft.apply.after")
        elif entry[:1] != NO_OP:
            unknown = ValueError(f"entries of kind {entry[:1].hex() or 'none'} are not known")
            raise InapplicableEntry(self._group_id, index, term, entry, unknown)
        self.applied_index = index
        return result

    def snapshot_if_due(self) -> None:
        """Write a snapshot once enough entries have gathered."""
        settings = self._engine.settings
        entries = self.applied_index - self._snapshot_index
        # The second rule needs a few entries more, or one huge entry would ask for ever.
        if entries >= settings.snapshot_entries or (
            self._log.size_bytes > settings.snapshot_log_bytes and entries > 0
        ):
            self.make_snapshot()

    def make_snapshot(self, *, retain: bool = True) -> None:
        """Write a snapshot of what is applied, then drop entries that it covers."""
        index = self.applied_index
        if self._is_writing or index <= self._log.base_index:
            return
        term = self._log.term_at(index)
        assert term is not None
        self._snapshot_index = index  # also if it fails: not again for the next command
        try:
            payload = self._machine.snapshot()
        except Exception:
            self._logger.exception("the state machine made no snapshot; the log is kept")
            return
        data = encode_snapshot(self._group_id, Snapshot(index, term, payload))
        disk = self._engine.disk
        self._is_writing = True

        def write() -> None:
            disk.prepare_snapshot(self._group_id, data)
            disk.publish_snapshot(self._group_id)

        def written(_: None) -> None:
            self._is_writing = False
            retained = self._engine.settings.retained_entries if retain else 0
            self._log.cut_to(index - retained)
            if self._log.size_bytes > self._engine.settings.snapshot_log_bytes:
                self._log.cut_to(index)

        self._engine.run_blocking(write, written)

    def release_segment(self) -> None:
        """Free the oldest segment of this group's entries: by a snapshot, or by repeating them."""
        if self._log.base_index < self.applied_index:
            self.make_snapshot(retain=False)
        elif self._log.size_bytes < self._engine.settings.segment_bytes // 4:
            self._log.repeat_to(self._engine.journal.unpin(self._group_id))

    def read_snapshot(self, loaded: Callable[[bytes | None], None]) -> None:
        """Read the snapshot file for a follower that lags behind the log."""
        disk = self._engine.disk
        self._engine.run_blocking(lambda: disk.read_snapshot(self._group_id), loaded)

    def install(self, snapshot: Snapshot, data: bytes, done: Callable[[bool], None]) -> None:
        """Replace state and log by the leader's snapshot; False if that was not possible."""
        disk = self._engine.disk
        if self._is_writing:
            done(False)  # the leader sends it again
            return
        self._is_writing = True

        def prepared(_: None) -> None:
            self._is_writing = False
            if snapshot.last_index <= self.applied_index:
                done(True)  # the log has come this far meanwhile
                return
            try:
                self._machine.restore(snapshot.payload)
            except Exception:
                self._logger.exception("the leader's snapshot could not be loaded")
                self._reload()
                done(False)
                return
            self.has_decided = True
            disk.publish_snapshot(self._group_id)
            if self._log.term_at(snapshot.last_index) == snapshot.last_term:
                self._log.cut_to(snapshot.last_index)
            else:
                self._log.reset_to(snapshot.last_index, snapshot.last_term)
            self._snapshot_index = self.applied_index = snapshot.last_index
            done(True)

        self._engine.run_blocking(lambda: disk.prepare_snapshot(self._group_id, data), prepared)

    def _reload(self) -> None:
        """Bring the state machine back to what was applied, from our own snapshot and log."""
        data = self._engine.disk.read_snapshot(self._group_id)
        snapshot = None if data is None else decode_snapshot(self._group_id, data)
        if snapshot is None:
            snapshot = Snapshot(0, 0, self._pristine)
        applied_index, self.applied_index = self.applied_index, snapshot.last_index
        self._machine.restore(snapshot.payload)
        for entry, index, term in self._log.read(self.applied_index + 1, applied_index):
            self.apply(entry, index, term)

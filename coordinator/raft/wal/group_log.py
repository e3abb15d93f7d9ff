"""The entries of one group in memory, with the interface of PySyncObj's journal.

The first tuple is not an entry. It has the index and term of the last entry in the snapshot, for
the log-matching check of the first real entry. Every change is recorded in the shared write-ahead
log before it becomes visible.
"""

from pysyncobj.journal import Journal as LibraryJournal

from .journal import Journal
from .recovery import Entry, RecoveredGroup


class GroupLog(LibraryJournal):
    """One group's log, as contiguous tuples (command, index, term) from `base_index` on."""

    def __init__(self, group_id: int, journal: Journal, recovered: RecoveredGroup) -> None:
        state = recovered.state
        self.group_id = group_id
        self._journal = journal
        self._entries: list[Entry] = [(b"", state.base_index, state.base_term), *recovered.log()]
        # The last index that is no longer in the log (0 if nothing was dropped), and the index of
        # the last entry. Read several times for each message.
        self.base_index = state.base_index
        self.last_index = self._entries[-1][1]
        self._term = state.term
        self._voted_for = state.voted_for
        self.is_voter = state.is_voter
        self.size_bytes = sum(len(entry[0]) for entry in self._entries)
        self.durable_index = self.last_index  # recovery has synced all entries

    @property
    def last_term(self) -> int:
        """Return the term of the last entry."""
        return self._entries[-1][2]

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry or of `base_index`, or None for any other index."""
        offset = index - self.base_index
        return self._entries[offset][2] if 0 <= offset < len(self._entries) else None

    def read(self, first_index: int, last_index: int) -> list[Entry]:
        """Return the entries from `first_index` to `last_index`, both inclusive."""
        base = self.base_index
        return self._entries[first_index - base : last_index - base + 1]

    def read_bytes(self, first_index: int, bytes_max: int) -> list[Entry]:
        """Return entries from `first_index` on, at least one, up to `bytes_max`."""
        start = position = first_index - self.base_index
        size = 0
        while position < len(self._entries):
            size += len(self._entries[position][0]) + 16
            if size > bytes_max and position > start:
                break
            position += 1
        return self._entries[start:position]

    def cut_to(self, index: int) -> None:
        """Drop the entries up to `index`, because a durable snapshot includes their effect."""
        offset = index - self.base_index
        if offset <= 0:
            return
        term = self._entries[offset][2]
        self._journal.append_base(self.group_id, index, term)
        self.size_bytes -= sum(len(entry[0]) for entry in self._entries[: offset + 1])
        self._entries = [(b"", index, term), *self._entries[offset + 1 :]]
        self.base_index, self.last_index = index, self._entries[-1][1]

    def reset_to(self, index: int, term: int) -> None:
        """Replace the log by a durable snapshot of the leader."""
        self._journal.append_reset(self.group_id, index, term)
        self._entries = [(b"", index, term)]
        self.base_index = self.last_index = index
        self.size_bytes = 0
        self.durable_index = index

    def repeat_to(self, index: int) -> None:
        """Write the entries up to `index` again, so that the oldest segment can be deleted."""
        for command, entry_index, term in self.read(self.base_index + 1, index):
            self._journal.append_entry(self.group_id, entry_index, term, command)

    def set_voter(self, is_voter: bool) -> None:
        """Record whether this node may vote. A node that has lost its log may not."""
        self.is_voter = is_voter
        self._journal.append_voter(self.group_id, is_voter=is_voter)

    # PySyncObj's interface, with its names. `entryFrom` and `[...]` count from the base tuple.

    def add(self, command: bytes, idx: int, term: int) -> None:
        assert idx == self.last_index + 1, "a gap in the log"
        self._entries.append((command, idx, term))
        self.last_index = idx
        self.size_bytes += len(command)
        self._journal.append_entry(self.group_id, idx, term, command)

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Remove entries that conflict with the leader's entries."""
        index = self._entries[entryFrom][1]
        self.size_bytes -= sum(len(entry[0]) for entry in self._entries[entryFrom:])
        del self._entries[entryFrom:]
        self.last_index = self._entries[-1][1]
        self._journal.append_truncate(self.group_id, index)
        self.durable_index = min(self.durable_index, index - 1)

    def setCurrentTerm(self, term: int, votedForNodeId: int | None) -> None:
        self._term = term
        self._voted_for = -1 if votedForNodeId is None else votedForNodeId
        self._journal.append_term(self.group_id, term, self._voted_for)

    def getCurrentTerm(self) -> int:
        return self._term

    def getVotedForNodeId(self) -> int | None:
        """Return the node that this node has voted for in the current term, or None."""
        return None if self._voted_for < 0 else self._voted_for

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Do nothing, since the leader sends the commit index again after a restart."""

    def getRaftCommitIndex(self) -> int:
        return self.base_index

    def __getitem__(self, item: int) -> Entry:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def _destroy(self) -> None:
        """Do nothing, because the write-ahead log outlives its groups."""

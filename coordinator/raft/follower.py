"""The follower's side of a group, which checks a leader's messages before PySyncObj gets them.

PySyncObj truncates its log after `prev_index` of *any* append, even a repeated or late one. It also
moves the commit index over entries that it never compared. Therefore this file first removes the
part of a message that is already in the log. Entries are removed only after a conflict, and the
commit index stays within the entries that were compared with this leader's log in this term. A
conflict with a committed entry ends the process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from .context import GroupContext
from .library import FOLLOWER
from .messages import AppendEntries, AppendReply, Commit, SnapshotChunk, SnapshotReply
from .outcomes import BrokenInvariant

SnapshotId = tuple[int, int]  # the index and term of the snapshot's last entry


@dataclass(slots=True)
class _Incoming:
    key: tuple[int, int, int, int]  # sender, index and term of the snapshot, its size
    chunks: list[bytes] = field(default_factory=list[bytes])
    size_bytes: int = 0


class Follower:
    """The receiving side of one group. Messages of older terms were already dropped."""

    def __init__(
        self,
        context: GroupContext,
        install: Callable[[SnapshotId, list[bytes], Callable[[bool], None]], None],
    ) -> None:
        self._group_id = context.group_id
        self._core = context.core
        self._log = context.log
        self._settings = context.settings
        self._post = context.post
        self._post_durable = context.post_durable
        self._install = install
        self._verified_term = 0
        self._verified_index = 0
        self._incoming: _Incoming | None = None
        self._is_installing = False

    @property
    def verified(self) -> tuple[int, int]:
        """Return the last leader's term, and the index up to which this log equals the leader's."""
        return self._verified_term, self._verified_index

    def take_quietly(self, peer: int, append: AppendEntries) -> bool:
        """Acknowledge a heartbeat that changes nothing. Return False if `on_append` must be called.

        In an idle cluster every message is such a heartbeat, and `on_append` would compare the same
        values.
        """
        core, log, prev_index = self._core, self._log, append.prev_index
        is_quiet = (
            not append.entries
            and append.term == core.term == self._verified_term
            and prev_index == self._verified_index == log.last_index
            and append.commit_index == core.commit_index
            and log.term_at(prev_index) == append.prev_term
            and core.state == FOLLOWER
            and core.leader_id == peer
            and log.is_voter
            and not self._is_installing
        )
        if is_quiet:
            self.acknowledge(peer)
        return is_quiet

    def on_append(self, peer: int, append: AppendEntries) -> None:
        """Compare the leader's entries with the log, append new ones, and acknowledge them."""
        core, log = self._core, self._log
        if self._is_installing:
            core.follow_leader(peer, append.term)
            return
        self._enter(append.term)
        prev_index, prev_term, entries = append.prev_index, append.prev_term, append.entries
        if prev_index < log.base_index:  # committed and in this node's snapshot, so it is the same
            entries = entries[log.base_index - prev_index :]
            prev_index, prev_term = log.base_index, log.term_at(log.base_index) or 0
        if log.term_at(prev_index) != prev_term:
            core.follow_leader(peer, append.term)
            lacks = prev_index > log.last_index
            next_index = (log.last_index if lacks else core.commit_index) + 1
            self._post(peer, AppendReply(append.term, False, next_index, log.is_voter))
            return
        known = 0
        for term, _ in entries:
            if log.term_at(prev_index + known + 1) != term:
                break
            known += 1
        index, fresh = prev_index + known, entries[known:]
        self._verified_index = max(self._verified_index, index + len(fresh))
        commit_index = min(append.commit_index, self._verified_index)
        if not fresh:
            core.follow_leader(peer, append.term, commit_index)
            self.acknowledge(peer)
            return
        if index < min(log.last_index, core.commit_index):
            raise BrokenInvariant(
                f"the leader {peer} of term {append.term} wants to replace the committed entry "
                f"{index + 1} of group {self._group_id}"
            )
        core.handle(
            peer,
            {
                "type": "append_entries",
                "term": append.term,
                "commit_index": commit_index,
                "entries": [(e[1], index + i, e[0]) for i, e in enumerate(fresh, 1)],
                "prevLogIdx": index,
                "prevLogTerm": log.term_at(index),
            },
        )  # the library answers with next_node_idx, which calls `acknowledge`

    def acknowledge(self, peer: int) -> None:
        """Send the leader the index up to which this log is durable and equals the leader's log."""
        reply = AppendReply(self._core.term, True, self._verified_index + 1, self._log.is_voter)
        self._post_durable(peer, reply)

    def on_commit(self, peer: int, commit: Commit) -> None:
        """Follow the leader's commit index, within the verified part of the log."""
        self._enter(commit.term)
        self._core.follow_leader(
            peer, commit.term, min(commit.commit_index, self._verified_index, self._log.last_index)
        )

    def on_chunk(self, peer: int, chunk: SnapshotChunk) -> None:
        """Store a part of the leader's snapshot.

        Install the snapshot once it is complete and valid.
        """
        self._core.follow_leader(peer, chunk.term)
        self._enter(chunk.term)
        if self._is_installing:
            return
        # Already committed here, so it is the same.
        if chunk.snapshot_index <= self._core.commit_index:
            self._verified_index = max(self._verified_index, chunk.snapshot_index)
            self.acknowledge(peer)
            return
        if chunk.total_bytes > self._settings.snapshot_bytes_max:
            return
        key = peer, chunk.snapshot_index, chunk.snapshot_term, chunk.total_bytes
        if self._incoming is None or self._incoming.key != key:
            self._incoming = _Incoming(key)
        incoming = self._incoming
        fits = incoming.size_bytes + len(chunk.data) <= chunk.total_bytes
        if chunk.offset == incoming.size_bytes and fits:
            incoming.chunks.append(chunk.data)
            incoming.size_bytes += len(chunk.data)
        if incoming.size_bytes < chunk.total_bytes:
            reply = SnapshotReply(chunk.term, chunk.snapshot_index, incoming.size_bytes)
            self._post(peer, reply)
            return
        self._incoming = None
        self._is_installing = True

        def installed(loaded: bool) -> None:
            self._is_installing = False
            if loaded and self._core.leader_id == peer and self._core.term == chunk.term:
                self._verified_index = max(self._verified_index, chunk.snapshot_index)
                self.acknowledge(peer)

        # A damaged snapshot is not answered, so the leader repeats it after its next heartbeat.
        self._install((chunk.snapshot_index, chunk.snapshot_term), incoming.chunks, installed)

    def _enter(self, term: int) -> None:
        if term != self._verified_term:
            self._verified_term, self._verified_index = term, 0

"""PySyncObj 0.3.17, used only for elections and log matching.

This is the only file that uses the library's private names (through Python's name mangling, hence
the exact version). From the library come terms and votes, the majority, the candidate, the begin of
a leader's term with its no-op, and the follower's append. The parts that lose acknowledged commands
are replaced (docs/decisions/0003-raft.md). These are journal, snapshots, apply loop, commit rule,
sending, timers, transport and pickle.
"""

# pyright: reportAttributeAccessIssue=false
from collections.abc import Callable, Sequence
from typing import Any

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from ...runtime.c_calls import attribute_of
from .wal.group_log import GroupLog

if VERSION != "0.3.17":
    raise ImportError(f"pysyncobj must be exactly 0.3.17, not {VERSION}: private names are used")

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
COMMAND = b"\x00"  # the first byte of an entry, like the library's command types
NO_OP = b"\x01"

LibraryMessage = dict[str, Any]


class _Outbound(Transport):
    """The transport object that PySyncObj gets, which passes its messages to the group."""

    def __init__(self, post: Callable[[int, LibraryMessage], None]) -> None:
        super().__init__(None, None, [])
        self._post = post

    def send(self, node: Node, message: LibraryMessage) -> bool:
        self._post(node.id, message)
        return True


class _Node(int, Node):
    """A node as PySyncObj knows it.

    To save time, it is compared and hashed as an int, in C code.
    """

    def __bool__(self) -> bool:
        return True


class RaftCore(SyncObj):
    """One group's Raft state. No method blocks, and messages are sent through `post`."""

    def __init__(
        self,
        node_id: int,
        others: Sequence[int],
        log: GroupLog,
        post: Callable[[int, LibraryMessage], None],
    ) -> None:
        self._nodes = {node: _Node(node) for node in (node_id, *others)}
        self._others = tuple(others)
        conf = SyncObjConf(
            autoTick=False,  # no thread
            appendEntriesUseBatch=True,  # no wake-up pipe
            dynamicMembershipChange=False,
            commandsWaitLeader=False,
            useFork=False,
        )
        peers = [self._nodes[node] for node in others]
        super().__init__(self._nodes[node_id], peers, conf, transport=_Outbound(post))
        self._node_id = node_id
        self._SyncObj__needLoadDumpFile = False
        self._SyncObj__raftLog = log
        self._SyncObj__raftCurrentTerm = max(log.getCurrentTerm(), log.last_term)
        self._SyncObj__votedForNodeId = log.getVotedForNodeId()
        self._SyncObj__raftCommitIndex = log.base_index
        self._SyncObj__raftLastApplied = log.base_index

    # Read several times for each message and each turn.
    term: int = attribute_of("_SyncObj__raftCurrentTerm")
    state: int = attribute_of("_SyncObj__raftState")
    # The last entry known to be committed.
    commit_index: int = attribute_of(
        "_SyncObj__raftCommitIndex", lambda core, index: core.set_commit_index(index)
    )

    @property
    def leader_id(self) -> int | None:
        """Return the leader of this term, or None if it is not known."""
        leader = self._SyncObj__raftLeader
        return None if leader is None else leader.id

    def set_commit_index(self, index: int) -> None:
        self._SyncObj__raftCommitIndex = index

    @property
    def no_op_index(self) -> int:
        """Return the log index at which this leader's term begins."""
        return self._SyncObj__noopIDx

    def match_index(self, peer: int) -> int:
        """Return the last entry that a follower has acknowledged in this term (leader only)."""
        return self._SyncObj__raftMatchIndex.get(self._nodes[peer], 0)

    def reset_match_index(self, peer: int) -> None:
        """Ignore a follower's earlier acknowledgements, since it may have lost the entries."""
        self._SyncObj__raftMatchIndex[self._nodes[peer]] = 0

    def handle(self, peer: int, message: LibraryMessage) -> None:
        """Pass a message of this or a higher term to the library."""
        self._SyncObj__onMessageReceived(self._nodes[peer], message)

    def follow_leader(self, peer: int, term: int, commit_index: int = 0) -> None:
        """Follow `peer` as the leader of `term`. Entries up to `commit_index` are verified."""
        commit = max(commit_index, self.commit_index)
        self.handle(peer, {"type": "append_entries", "term": term, "commit_index": commit})

    def stand(self) -> None:
        """Become a candidate in the next term and ask for votes."""
        self._SyncObj__raftLeader = None
        self._SyncObj__setState(CANDIDATE)
        self._SyncObj__setCurrentTerm(self.term + 1, self._node_id)
        self._SyncObj__votesCount = 1
        log = self._SyncObj__raftLog
        message = {
            "type": "request_vote",
            "term": self.term,
            "last_log_index": log.last_index,
            "last_log_term": log.last_term,
        }
        for peer in self._others:
            self._SyncObj__transport.send(self._nodes[peer], message)
        if not self._others:
            self._SyncObj__onBecomeLeader()

    def follow(self, term: int) -> None:
        """Become a follower without a leader, in `term` if that is newer."""
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)

    def renounce_vote(self, term: int) -> None:
        """Enter `term` as if the vote was given, because this node may have forgotten its vote."""
        assert term >= self.term
        self._SyncObj__setCurrentTerm(term, self._node_id)

    def _SyncObj__sendAppendEntries(self) -> None:
        """Do nothing, because ProgressTracker sends messages during the group's turn."""

"""The hardened Raft engine: replicated, durable decisions (the only importer of pysyncobj).

Begin with engine.py (the process) and group.py (one group). PySyncObj elects and matches logs
(library.py); the code between it and the disk (coordinator/raft/wal/journal.py,
coordinator/raft/wal/recovery.py), the network (messages.py, follower.py, progress.py) and elections
(election.py) is ours. The meaning of commands and the transport of frames are elsewhere.
"""

import _socket
import socket

import pysyncobj  # noqa: F401  # pyright: ignore[reportUnusedImport]

# Importing the library replaces socket.inet_ntop by a function for Windows on every platform
# (pysyncobj/win_inet_pton.py); callers then get a TypeError.
socket.inet_ntop = _socket.inet_ntop

# ruff: noqa: E402
from .applier import StateMachine
from .engine import RaftEngine
from .group import RaftGroup
from .outcomes import (
    BrokenInvariant,
    CorruptJournal,
    DefinitelyNot,
    ForeignJournal,
    InapplicableEntry,
    OutcomeUnknown,
    UnloadableSnapshot,
)
from .settings import RaftSettings, check_voters
from .status import RaftStatus, VoterStatus

__all__ = [
    "BrokenInvariant",
    "CorruptJournal",
    "DefinitelyNot",
    "ForeignJournal",
    "InapplicableEntry",
    "OutcomeUnknown",
    "RaftEngine",
    "RaftGroup",
    "RaftSettings",
    "RaftStatus",
    "StateMachine",
    "UnloadableSnapshot",
    "VoterStatus",
    "check_voters",
]

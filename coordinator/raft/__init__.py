"""The Raft engine, which replicates commands durably, and the only importer of pysyncobj.

Begin with engine.py (the process) and group.py (one group). PySyncObj elects leaders and matches
logs (library.py). The code between it and the disk (coordinator/raft/wal/journal.py,
coordinator/raft/wal/recovery.py), the network (messages.py, follower.py, progress.py) and elections
(election.py) is our own. The meaning of commands and the transport of frames are elsewhere.
"""

import _socket
import socket

import pysyncobj  # noqa: F401  # pyright: ignore[reportUnusedImport]

# On every platform, importing the library replaces socket.inet_ntop by a function for Windows
# (pysyncobj/win_inet_pton.py), which raises a TypeError for callers.
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

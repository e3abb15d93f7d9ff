"""The errors of a submitted command, and of the files of the Raft engine.

A submitted command has exactly one of three outcomes. It returns the result of `apply` (committed).
It raises DefinitelyNot (the command is in no log and never will be). It raises OutcomeUnknown (the
command may still be committed, now or later). After DefinitelyNot any command may be retried. After
OutcomeUnknown only a command that `apply` recognises as a repetition may be retried.
"""

from ...version import __version__

_WHAT_TO_DO = (
    f"This node runs oncelog {__version__}. If others run a newer release, this node runs an older "
    "version than the one that wrote this: start it with theirs. If all run the same, this is a "
    "defect of oncelog: report this line with what stands above it."
)


class DefinitelyNot(Exception):
    """The command was not and will not be committed. The text is the reason."""


class OutcomeUnknown(Exception):
    """The command may or may not be committed, because of a lost leadership or a timeout."""


class InapplicableEntry(Exception):
    """A committed entry cannot be applied by this node, which must end. See applier.py."""

    def __init__(
        self, group_id: int, index: int, term: int, entry: bytes, cause: Exception
    ) -> None:
        super().__init__(
            f"the committed entry {index} of Raft group {group_id} (term {term}, {len(entry)} "
            f"bytes, {entry[:24].hex()}...) cannot be applied here: {_words(cause)}. "
            f"Nothing is lost: the entry stays in the log. {_WHAT_TO_DO}"
        )


class UnloadableSnapshot(Exception):
    """A valid snapshot cannot be decoded by this node's state machine. The node must end."""

    def __init__(self, group_id: int, index: int, origin: str, cause: Exception) -> None:
        super().__init__(
            f"the snapshot of Raft group {group_id} up to entry {index}, {origin}, cannot be read "
            f"here: {_words(cause)}. Nothing is lost, here either. {_WHAT_TO_DO}"
        )


def _words(cause: Exception) -> str:
    return str(cause).rstrip(".") or repr(cause)


class CorruptJournal(Exception):
    """Synced bytes of the write-ahead log or a snapshot are damaged. The node must not start."""

    def __init__(self, file: object, problem: str) -> None:
        super().__init__(
            f"{file}: {problem}. Nothing was changed. If the other voters are healthy, stop this "
            "node, move its raft directory aside and start it again: it then takes no part in "
            "votes until every other voter has answered it and the leader has sent it the log."
        )


class BrokenInvariant(Exception):
    """An event that Raft excludes. The process must end before it can damage data."""


class ForeignJournal(CorruptJournal):
    """The directory was written by another node or for another set of voters."""

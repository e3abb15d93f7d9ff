"""What can become of a submitted command, and what can be wrong with the files.

A submit has exactly three outcomes: it returns the result of `apply` (committed), it raises
DefinitelyNot (the command is in no log and never will be), or it raises OutcomeUnknown (it may
still be committed, now or later). Only the second may be retried blindly; a retry after the
third needs a command that `apply` recognises.
"""

from ... import __version__


class DefinitelyNot(Exception):
    """The command was not and will not be committed; the text says why."""


class OutcomeUnknown(Exception):
    """The command may or may not be committed: leadership was lost or time ran out."""


class InapplicableEntry(Exception):
    """A committed entry cannot be applied by this node, which must end: see applier.py."""

    def __init__(
        self, group_id: int, index: int, term: int, entry: bytes, cause: Exception
    ) -> None:
        super().__init__(
            f"the committed entry {index} of Raft group {group_id} (term {term}, {len(entry)} "
            f"bytes, {entry[:24].hex()}...) cannot be applied here: {cause or cause!r}. Nothing is "
            f"lost: the entry stays in the log. This node runs oncelog {__version__}. If others "
            "run a newer release, this node runs an older version than the one that decided this: "
            "start it with theirs. If all run the same, this is a defect of oncelog: report this "
            "line with what stands above it."
        )


class CorruptJournal(Exception):
    """Synced bytes of the write-ahead log or a snapshot are damaged; the node must not start."""

    def __init__(self, file: object, problem: str) -> None:
        super().__init__(
            f"{file}: {problem}. Nothing was changed. If the other voters are healthy, stop this "
            "node, move its raft directory aside and start it again: it then takes no part in "
            "votes until every other voter has answered it and the leader has sent it the log."
        )


class BrokenInvariant(Exception):
    """Something that Raft rules out has happened; the process must end before it does harm."""


class ForeignJournal(CorruptJournal):
    """The directory was written by another node or for another set of voters."""

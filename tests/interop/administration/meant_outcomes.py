"""The Admin calls and tool commands that may have another outcome than on Kafka, with reasons.

docs/protocol.md lists these differences.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from oncelog.proof.conformance.compare import FIXED_VOTERS, NO_SHARE, NO_STREAMS, OWN_KEYS, REASONS

NO_SUCH_GROUPS = "share and streams groups are not served"

CALLS = {
    "*ShareGroup*": NO_SHARE,
    "describeStreamsGroups *": NO_STREAMS,
    "describeFeatures": NO_SUCH_GROUPS,
}
# Share groups are deleted by a request that is served, of which they are no part.
SAME_CALLS = ("deleteShareGroups",)

COMMANDS = {
    "console-share-consumer": NO_SHARE,
    "share-groups describe": NO_SHARE,
    "streams-groups describe": NO_STREAMS,
    "formatter TransactionLog": "transactions are kept by Raft groups: oncelog txn log",
    "features upgrade dry": NO_SUCH_GROUPS,
}
FORMS = {"configs broker loggers": "loggers are Python's: their form is compared, not their names"}


class MeantLine(NamedTuple):
    """A pattern (`*`) of output lines of one command that may differ, with the reason."""

    command: str
    pattern: str
    reason: str


def _by_conformance(kind: str, command: str, form: str) -> list[MeantLine]:
    """Return a `MeantLine` for each reason of `oncelog conformance` that has this kind.

    In `form`, `{}` stands for the name that oncelog does not support, such as a config key.
    """
    return [
        MeantLine(command, form.format(each.pattern.removeprefix("broker ")), each.reason)
        for each in REASONS
        if each.kind == kind
    ]


LINES = (
    *_by_conformance("config", "configs broker all", "{}=*"),
    MeantLine("configs broker all", "sasl.enabled.mechanisms=*", "there is no Kerberos"),
    MeantLine("configs broker all", "ssl.*store.type=*", "keystores are PEM, not Java's"),
    MeantLine("configs broker all", f"{OWN_KEYS}*", "keys that only oncelog has are shown, too"),
    *_by_conformance("feature", "features describe", "Feature: {} *"),
    *_by_conformance("api", "broker-api-versions", "{}(*"),
    *_by_conformance("versions", "broker-api-versions", "{}(*"),
    MeantLine("metadata-quorum status", "CurrentVoters: *", FIXED_VOTERS),
    MeantLine("metadata-quorum status", "CurrentObservers: *", FIXED_VOTERS),
    MeantLine("metadata-quorum replication", "* Observer", FIXED_VOTERS),
    MeantLine("metadata-quorum replication", "* Follower", FIXED_VOTERS),
)


def reason(name: str, meant: dict[str, str]) -> str | None:
    """Return why the call or command of this name may differ, or None if it must not differ."""
    return next((why for pattern, why in meant.items() if fnmatchcase(name, pattern)), None)


def meant_lines(command: str, line: str) -> list[MeantLine]:
    """Return the rows of LINES that match a line of the command's output."""
    return [each for each in LINES if each.command == command and fnmatchcase(line, each.pattern)]

"""Compares two surveys, and finds features that this cluster lacks or answers differently.

REASONS has the reasons why a cluster of ours differs from Apache Kafka 4.4, of which the first
match counts. docs/protocol.md is generated from the reasons. A difference without a reason fails
`oncelog conformance`, so an unintended gap is noticed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from .outcomes import agree
from .survey import Survey, SurveyedApi, api_label, runs_of, version_range

Kind = Literal["api", "versions", "answer", "feature", "config"]
VERDICTS = ("equal", "reason", "without", "not asked")
NOTHING = "-"
NO_SHARE = "share groups are not served"
NO_STREAMS = "streams groups are not served"
FIXED_VOTERS = "decisions are kept by Raft groups whose voters never change; there is no KRaft"

_APIS = {
    NO_SHARE: ("Share*", "*Share*"),
    NO_STREAMS: ("Streams*",),
}
_FEATURES = {
    NO_SHARE: ("share.version",),
    NO_STREAMS: ("streams.version",),
}
_BROKER_KEYS = {
    NO_SHARE: ("group.share.*", "share.*", "errors.deadletterqueue.*"),
    NO_STREAMS: ("group.streams.*",),
    FIXED_VOTERS: (
        "controller.*",
        "metadata.log.dir",
        "process.roles",
        "broker.id",
    ),
}
OWN_KEYS = "oncelog."  # only brokers of ours have such configuration keys


class Reason(NamedTuple):
    """A reason for differences of one kind, in rows with a name that matches (`*` and `?`)."""

    kind: Kind
    pattern: str
    reason: str


REASONS: tuple[Reason, ...] = (
    *(Reason("api", name, why) for why, names in _APIS.items() for name in names),
    *(Reason("feature", name, why) for why, names in _FEATURES.items() for name in names),
    *(
        Reason("config", f"broker {name}", why)
        for why, names in _BROKER_KEYS.items()
        for name in names
    ),
    Reason("versions", "SaslHandshake", "after version 0 tokens are no requests; clients take 1"),
)


class ConformanceRow(NamedTuple):
    """One feature of the other cluster. `reason` explains a difference, if known.

    is_asked: False if the request was not sent to both clusters, for the given `reason`.
    """

    kind: Kind
    name: str
    theirs: str
    ours: str
    is_equal: bool
    reason: str = ""
    is_asked: bool = True

    @property
    def verdict(self) -> str:
        if not self.is_asked:
            return "not asked"
        return "equal" if self.is_equal else "reason" if self.reason else "without"


def reasons_for(survey: Survey) -> tuple[Reason, ...]:
    """Return the known reasons for differences, if the survey is of an oncelog cluster, else ()."""
    keys = survey.configs.get("broker", frozenset())
    return REASONS if any(key.startswith(OWN_KEYS) for key in keys) else ()


def compared(ours: Survey, theirs: Survey, reasons: Sequence[Reason]) -> list[ConformanceRow]:
    """Return a row for each feature of the other cluster.

    A row with a difference gets the first reason that matches it.
    """
    rows = [*_apis(ours, theirs), *_features(ours, theirs), *_configs(ours, theirs)]
    return [row if row.is_equal or not row.is_asked else _with_reason(row, reasons) for row in rows]


def counts(rows: Iterable[ConformanceRow]) -> dict[str, int]:
    found = Counter(row.verdict for row in rows)
    return {verdict: found[verdict] for verdict in VERDICTS}


def _with_reason(row: ConformanceRow, reasons: Sequence[Reason]) -> ConformanceRow:
    for known in reasons:
        if known.kind == row.kind and fnmatchcase(row.name, known.pattern):
            return row._replace(reason=known.reason)
    return row


def _apis(ours: Survey, theirs: Survey) -> Iterator[ConformanceRow]:
    for key, their in sorted(theirs.apis.items()):
        name, their_range = api_label(key), version_range(their.oldest, their.newest)
        our = ours.apis.get(key)
        if our is None:
            yield ConformanceRow("api", name, their_range, NOTHING, is_equal=False)
            continue
        our_range = version_range(our.oldest, our.newest)
        has_all = our.oldest <= their.oldest and their.newest <= our.newest
        kind: Kind = "api" if has_all else "versions"
        yield ConformanceRow(kind, name, their_range, our_range, is_equal=has_all)
        yield from _answers(name, our, their)


def _answers(name: str, our: SurveyedApi, their: SurveyedApi) -> Iterator[ConformanceRow]:
    """Yield rows for the answers of one API.

    The versions with equal answers share a row. Versions with the same difference share a row, and
    so do versions that were not asked for the same reason.
    """
    alike: list[int] = []
    other: dict[tuple[str, str], list[int]] = {}
    unasked: dict[str, list[int]] = {}
    for version in sorted(their.came.keys() & our.came.keys()):
        pair = their.came[version], our.came[version]
        if unknown := [each.detail for each in pair if each.came == "not asked"]:
            unasked.setdefault(unknown[0], []).append(version)
        elif agree(*pair):
            alike.append(version)
        else:
            other.setdefault((str(pair[0]), str(pair[1])), []).append(version)
    if alike:
        words = "as the other"
        yield ConformanceRow("answer", f"{name} {runs_of(alike)}", words, words, is_equal=True)
    for (their_words, our_words), versions in other.items():
        label = f"{name} {runs_of(versions)}"
        yield ConformanceRow("answer", label, their_words, our_words, is_equal=False)
    for why, versions in unasked.items():
        label, words = f"{name} {runs_of(versions)}", "not asked"
        yield ConformanceRow("answer", label, words, words, False, why, is_asked=False)


def _features(ours: Survey, theirs: Survey) -> Iterator[ConformanceRow]:
    for name, their in sorted(theirs.features.items()):
        our = ours.features.get(name)
        shown = NOTHING if our is None else str(our)
        yield ConformanceRow("feature", name, str(their), shown, is_equal=our == their)


def _configs(ours: Survey, theirs: Survey) -> Iterator[ConformanceRow]:
    for kind, names in sorted(theirs.configs.items()):
        known = ours.configs.get(kind, frozenset())
        for name in sorted(names):
            shown = name if name in known else NOTHING
            yield ConformanceRow("config", f"{kind} {name}", name, shown, is_equal=name in known)

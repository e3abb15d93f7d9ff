"""Ten classes of bugs found in Kafka-like systems in 2025 and 2026, and their detectors.

The switches of a class plant such a bug in a broker, and random chaos finds it. docs/judge.md has
the seeds.
"""

from typing import NamedTuple


class BugClass(NamedTuple):
    what: str
    seen_by: str
    switches: tuple[str, ...]


CLASSES = (
    BugClass(
        "an offset commit that was acknowledged is truncated away (KAFKA-20634)",
        "A6 `commit-undone`",
        ("early-commits",),
    ),
    BugClass(
        "a coordinator cannot load while its log is compacted (KAFKA-19862)",
        "there is no unhandled exception, and all groups work at the end",
        ("failed-load",),
    ),
    BugClass(
        "two owners of a partition",
        "A6 `two-owners`, G1 `held-twice`",
        ("reused-generation", "taken-too-early"),
    ),
    BugClass(
        "damage in the files of a replica is not detected",
        "W2 `replica-divergence`, W3 `derived-file`, lookups of each batch by offset and by time",
        ("unchecked-snapshot", "unchecked-reads", "believed-index"),
    ),
    BugClass("sequences are used twice", "J2 `duplicate`", ("no-dedupe", "no-window")),
    BugClass(
        "epochs reach the largest number (KAFKA-19367, KAFKA-20090)",
        "all transactions are decided at the end (epochs of some seeds begin near 32,766)",
        ("last-epoch",),
    ),
    BugClass(
        "repeated markers are refused (KAFKA-19999)",
        "all transactions are decided at the end",
        ("strict-marker",),
    ),
    BugClass(
        "a batch becomes part of another transaction (KAFKA-17754, KAFKA-18575)",
        "J3 `G1a`, J5 `lso-stuck`, W1 `ended-early`; all transactions are decided at the end",
        ("no-guard", "no-connection-fence", "no-prepare-index", "former-transaction"),
    ),
    BugClass(
        "a wrong header lets retention delete fresh records", "J5 `expired`", ("believed-time",)
    ),
    BugClass(
        "truncated or deleted data comes back",
        "W2 `replica-divergence`; a deleted group is not listed",
        ("no-truncation", "returning-group", "cleaned-by-name"),
    ),
)

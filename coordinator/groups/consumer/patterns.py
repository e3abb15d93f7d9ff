"""Subscriptions by regular expression (KIP-848), checked and resolved to topic names.

The expressions are those of RE2, as in Kafka. The time of a match grows only with the length of the
name, whatever a client sends, while Python's own `re` may never return. RE2 is a separate library
and is loaded with the first expression. One expression is compiled at a time and dropped
afterwards, so that many large expressions do not fill the memory
(docs/decisions/0016-re2-for-patterns.md).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ....runtime.steps import Steps
from ....wire.errors import InvalidRegularExpression
from .consumer_group import ConsumerGroup, ConsumerRecord
from .known_topics import Topics
from .records import GroupEpoch, GroupEpochKey, ResolvedPattern, ResolvedPatternKey
from .subscriptions import metadata_hash

if TYPE_CHECKING:
    import re2

PATTERN_CHARACTERS_MAX = 10_000
# The limit for a compiled expression and its memory during a match. It limits the time to compile
# an expression (8 ms) and to match a name of 249 characters (1 ms).
PATTERN_MEMORY_BYTES = 512 * 1024
_MATCHES_A_STEP = 200  # of a short expression, 2 us each
_SHORT_PROGRAM = 20


def check_pattern(pattern: str) -> None:
    """Raise InvalidRegularExpression for an expression that is too large, or that RE2 refuses."""
    import re2

    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex has {len(pattern)} characters; at most "
            f"{PATTERN_CHARACTERS_MAX} are taken."
        )
    try:
        _compiled(pattern)
    except re2.error as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {_reason(error)}."
        ) from None
    finally:
        re2.purge()


def resolving_patterns(
    patterns: Iterable[str], topics: Collection[str]
) -> Steps[dict[str, tuple[str, ...]]]:
    """Return for each expression the sorted names of the topics that it matches as a whole.

    `topics` must not change meanwhile. An invalid expression matches no topic, since the record of
    another broker may have an expression that only its RE2 accepts.
    """
    import re2

    names = sorted(topics)
    encoded = [name.encode() for name in names]
    resolved: dict[str, tuple[str, ...]] = {}
    for pattern in patterns:
        yield
        try:
            compiled = _compiled(pattern)
        except re2.error:
            resolved[pattern] = ()
            continue
        finally:
            re2.purge()
        at_a_step = max(1, _MATCHES_A_STEP * _SHORT_PROGRAM // (compiled.programsize + 1))
        at_a_step = min(at_a_step, _MATCHES_A_STEP)
        matches = compiled.fullmatch
        found: list[str] = []
        for begin in range(0, len(names), at_a_step):
            part = range(begin, min(begin + at_a_step, len(names)))
            found += [names[index] for index in part if matches(encoded[index]) is not None]
            yield
        resolved[pattern] = tuple(found)
    return resolved


def _compiled(pattern: str) -> "re2._Regexp":  # pyright: ignore[reportPrivateUsage]
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    options.never_capture = True
    return re2.compile(pattern, options)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def resolving(group: ConsumerGroup, topics: Topics) -> Steps[dict[str, tuple[str, ...]]]:
    """Return the topics that each subscribed expression of the group matches."""
    return resolving_patterns(list(group.subscribed_patterns), list(topics))


def resolved(
    group: ConsumerGroup, found: Mapping[str, tuple[str, ...]], topics: Topics, now_ms: int
) -> list[ConsumerRecord]:
    """Return the records of resolved patterns, with a new group epoch if their topics changed.

    Patterns without subscribed members are omitted.
    """
    records: list[ConsumerRecord] = []
    names, is_other = set(group.named), False
    for pattern in group.subscribed_patterns:
        before = group.patterns.get(pattern)
        if pattern not in found:
            names.update(() if before is None else before.topics)
            continue
        names.update(found[pattern])
        is_other |= found[pattern] != (() if before is None else before.topics)
        value = ResolvedPattern(found[pattern], 0, now_ms)
        records.append((ResolvedPatternKey(group.group_id, pattern), value))
    if not records:
        return []
    hashed = metadata_hash(names, topics)
    if is_other or hashed != group.metadata_hash:
        epoch = GroupEpoch(group.epoch + 1, hashed)
        records.append((GroupEpochKey(group.group_id), epoch))
    return records

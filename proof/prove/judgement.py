"""The judgement of the outputs, and the verdict in one line. The file does no I/O.

    EXACTLY ONCE: 2000 inputs, 2000 outputs; 9 faults met work in flight
    AT LEAST ONCE: 31 doubled
    AT MOST ONCE: 12 lost
    NEITHER: 12 lost, 31 doubled
    PROVES NOTHING: no fault met work in flight
    PROVES NOTHING: instance-2 never came to rest

Only inputs below the application's committed offsets count as lost. Inputs from its committed
offsets on are `pending`, and a stalled application is reported as stalled.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...deploy.cluster.failure import Failure
from .relation import Expect, Final, LogRecord, Matcher, text_of

VerdictName = Literal["EXACTLY ONCE", "AT LEAST ONCE", "AT MOST ONCE", "NEITHER", "PROVES NOTHING"]
PROVED, VIOLATED, PROVES_NOTHING = 0, 1, 3
JSON_NULL = "null"
Wanted = tuple[str | None, str]  # topic (None if any is right); id


@dataclass(frozen=True, slots=True)
class WrongFinal:
    """A key whose last output has a wrong value. A value of None means that there is no value."""

    key: str
    expected: str | None
    found: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The result of comparing outputs with inputs.

    doubled, lost: ids, each with the number of surplus or missing outputs. stray: outputs without a
    known input. aborted: ids of inputs in aborted transactions that have outputs, each with the
    number of its outputs.
    """

    inputs: int = 0
    outputs: int = 0
    doubled: Mapping[str, int] = field(default_factory=dict[str, int])
    lost: Mapping[str, int] = field(default_factory=dict[str, int])
    pending: Sequence[str] = ()
    stray: Sequence[LogRecord] = ()
    aborted: Mapping[str, int] = field(default_factory=dict[str, int])
    wrong: Sequence[WrongFinal] = ()

    @property
    def is_violated(self) -> bool:
        return bool(self.doubled or self.lost or self.stray or self.aborted or self.wrong)


@dataclass(frozen=True, slots=True)
class ProveVerdict:
    name: VerdictName
    why: str

    @property
    def line(self) -> str:
        return f"{self.name}: {self.why}"

    @property
    def exit_code(self) -> int:
        return {"EXACTLY ONCE": PROVED, "PROVES NOTHING": PROVES_NOTHING}.get(self.name, VIOLATED)


def judge_ids(
    inputs: Sequence[tuple[str, LogRecord]],
    outputs: Sequence[LogRecord],
    match: Matcher,
    *,
    fanout: int = 1,
    expect: Expect | None = None,
    is_passed: Callable[[LogRecord], bool] = lambda record: True,
    aborted: Collection[str] = (),
) -> Judgement:
    """Compare outputs with inputs by the input's id, which `match` finds in an output.

    inputs: the inputs by id. is_passed: tells whether the application has finished an input.
    aborted: ids of inputs in aborted transactions.
    """
    ids = {each for each, _ in inputs}
    wanted = _wanted(inputs, ids, fanout, expect)
    by_topic = {topic for topic, _ in wanted} - {None}
    had, stray, never = Counter[Wanted](), list[LogRecord](), Counter[str]()
    for output in outputs:
        found = match(output)
        if found is not None and found in aborted:
            never[found] += 1
        elif found is None or (
            found not in ids and (None, found) not in wanted and (output.topic, found) not in wanted
        ):
            stray.append(output)
        else:
            here = (output.topic, found)
            if had[here] >= wanted[here] and ((None, found) in wanted or here[0] not in by_topic):
                here = (None, found)  # an output in any topic will do, this one included
            had[here] += 1
    not_passed = {each for each, record in inputs if not is_passed(record)}
    doubled, lost, pending = Counter[str](), Counter[str](), set[str]()
    for key in wanted.keys() | had.keys():
        difference = had[key] - wanted[key]
        if difference > 0:
            doubled[key[1]] += difference
        elif difference < 0 and (key[1] in not_passed or (not_passed and key[1] not in ids)):
            pending.add(key[1])  # an id from --expect may be of any input
        elif difference < 0:
            lost[key[1]] -= difference
    return Judgement(
        inputs=len(inputs),
        outputs=len(outputs),
        doubled=dict(sorted(doubled.items())),
        lost=dict(sorted(lost.items())),
        pending=sorted(pending),
        stray=tuple(stray),
        aborted=dict(sorted(never.items())),
    )


def _wanted(
    inputs: Sequence[tuple[str, LogRecord]],
    ids: Collection[str],
    fanout: int,
    expect: Expect | None,
) -> Counter[Wanted]:
    if expect is None:
        return Counter({(None, each): fanout for each in ids})
    found, made = Counter[Wanted](), expect([record for _, record in inputs])
    try:
        for each in made:
            topic, which = each if isinstance(each, tuple) else (None, each)
            found[topic, text_of(which) or "" if isinstance(which, bytes) else str(which)] += 1
    except (TypeError, ValueError) as problem:
        told = f"--expect must return ids, or pairs (topic, id): {problem}."
        raise Failure(told, exit_code=2) from problem
    return found


def judge_finals(
    inputs: Sequence[tuple[str, LogRecord]],
    outputs: Sequence[LogRecord],
    final: Final,
    is_passed: Callable[[LogRecord], bool] = lambda record: True,
) -> Judgement:
    """Compare the last output of each key with the value that `final` expects.

    A tombstone is no value. While inputs are pending, no value counts as wrong.
    """
    pending = [each for each, record in inputs if not is_passed(record)]
    found = {text_of(output.key) or "": text_of(output.value) for output in outputs}
    made = final([record for _, record in inputs])
    try:
        expected = {
            _as_text(k): _as_text(v)
            for k, v in made.items()
            if v is not None or found.get(_as_text(k)) == JSON_NULL
        }
    except (AttributeError, TypeError, ValueError) as problem:
        told = f"--final must return a mapping to bytes, text or what JSON can hold: {problem}."
        raise Failure(told, exit_code=2) from problem
    wrong = [
        WrongFinal(key, expected.get(key), found.get(key))
        for key in sorted(expected.keys() | found.keys())
        if not _is_same(expected.get(key), found.get(key))
    ]
    return Judgement(
        inputs=len(inputs),
        outputs=len(outputs),
        pending=pending,
        wrong=() if pending else wrong,
    )


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return text_of(value) or ""
    return value if isinstance(value, str) else json.dumps(value)


def _is_same(one: str | None, other: str | None) -> bool:
    if one is None or other is None or one == other:
        return one == other
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


def verdict_of(
    judgement: Judgement,
    faults_met: int,
    *,
    stands_still: str = "",
    restless: str = "",
    is_faultless: bool = False,
) -> ProveVerdict:
    """Return the verdict of a run, such as EXACTLY ONCE or PROVES NOTHING.

    stands_still: why inputs are pending, as text. restless: a sentence about an instance that still
    failed or ended by itself at the end. The text of a violation ends with `restless`, or else with
    the number of pending inputs. Without a violation a run with `restless` or pending inputs proves
    nothing. is_faultless: no fault was requested.
    """
    j = judgement
    parts = [
        f"{count} {word}"
        for count, word in (
            (len(j.lost), "lost"),
            (len(j.doubled), "doubled"),
            (len(j.stray), "of no input"),
            (len(j.aborted), "of aborted inputs"),
            (len(j.wrong), "wrong at the end"),
        )
        if count
    ]
    stalled = f"the application stalled, {inputs_are(len(j.pending))} not through"
    if parts:
        unrest = restless or (stalled if j.pending else "")
        found = "; ".join(filter(None, (", ".join(parts), unrest)))
        if j.stray or j.aborted or j.wrong or (j.lost and j.doubled):
            return ProveVerdict("NEITHER", found)
        return ProveVerdict("AT LEAST ONCE" if j.doubled else "AT MOST ONCE", found)
    if restless:
        return ProveVerdict("PROVES NOTHING", restless)
    if j.pending:
        tail = f": {stands_still}" if stands_still else ""
        return ProveVerdict("PROVES NOTHING", stalled + tail)
    if not faults_met:
        why = "no fault was made" if is_faultless else "no fault met work in flight"
        return ProveVerdict("PROVES NOTHING", why)
    return ProveVerdict(
        "EXACTLY ONCE",
        f"{j.inputs} inputs, {j.outputs} outputs; {_times(faults_met)} met work in flight",
    )


def inputs_are(count: int) -> str:
    """Return "1 input is" or "N inputs are", to begin a sentence."""
    return "1 input is" if count == 1 else f"{count} inputs are"


def _times(count: int) -> str:
    return "1 fault" if count == 1 else f"{count} faults"


def through(committed: Mapping[tuple[str, int], int]) -> Callable[[LogRecord], bool]:
    """Return a function that returns whether an input is below its partition's committed offset."""
    return lambda record: record.offset < committed.get((record.topic, record.partition), 0)


def last_words(lines: Iterable[str], most: int = 10) -> list[str]:
    """Return the last non-empty lines of a log."""
    return [line.rstrip() for line in lines if line.strip()][-most:]

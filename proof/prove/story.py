"""The events that explain why one record was lost, doubled or aborted."""

from collections.abc import Iterable, Sequence

from .facts import Committed, Fact, Fetched, InputAborted, Struck, TransactionEnded, Wrote
from .judgement import Judgement
from .relation import LogRecord, Matcher

Line = tuple[float | None, str, str]  # when (monotonic s), who, what
Exit = tuple[float, str, int]  # when, who, exit code
Told = Fact | InputAborted
LINES_MAX, STORIES_MAX = 24, 12
AGAIN_S = 1.0  # a batch may come twice in a row where a fetch began within it


def candidates(judgement: Judgement) -> list[tuple[str, str]]:
    """Return up to STORIES_MAX pairs of id and anomaly, of the kind that explains most.

    They are aborted inputs with outputs, else lost ids, else the ids with the fewest extra copies.
    """
    if judgement.aborted:
        return [(i, "whose transaction was aborted") for i in judgement.aborted][:STORIES_MAX]
    if judgement.lost:
        return [(i, "lost") for i in judgement.lost][:STORIES_MAX]
    fewest = min(judgement.doubled.values(), default=0)
    doubled = [(i, "doubled") for i, more in judgement.doubled.items() if more == fewest]
    return doubled[:STORIES_MAX]


def shortest(
    judgement: Judgement,
    inputs: Sequence[tuple[str, LogRecord]],
    outputs: Sequence[LogRecord],
    match: Matcher,
    facts: Sequence[Told],
    struck: Sequence[Struck],
    exits: Sequence[Exit] = (),
) -> tuple[str, list[Line]]:
    """Return the shortest list of events that explains one anomaly, after its id and name.

    Both are empty if no id was lost, doubled, or written from an aborted input.
    """
    made: dict[str, list[LogRecord]] = {}
    for output in outputs:
        made.setdefault(match(output) or "", []).append(output)
    stories = [
        (f"{which}, {wrong}", tell(which, inputs, made.get(which, []), match, facts, struck, exits))
        for which, wrong in candidates(judgement)
    ]
    return min(stories, key=lambda story: (len(story[1]), story[0]), default=("", []))


def tell(
    which: str,
    inputs: Sequence[tuple[str, LogRecord]],
    outputs: Iterable[LogRecord],
    match: Matcher,
    facts: Sequence[Told],
    struck: Sequence[Struck],
    exits: Sequence[Exit] = (),
) -> list[Line]:
    """Return the events that explain why an input has no output or several, in the order of time.

    Outputs that were found in the topic, and in no request, have no time and come first.
    """
    places = [record for each, record in inputs if each == which]
    made = [output for output in outputs if match(output) == which]
    lines: list[Line] = [(None, "", f"input {which} stands at {r.place}") for r in places]
    for fact in facts:
        if isinstance(fact, InputAborted) and fact.which == which:
            place = LogRecord(fact.topic, fact.partition, fact.offset)
            places.append(place)
            lines.append(
                (
                    fact.at_s,
                    "the feeder",
                    f"aborted transaction {fact.transactional_id}, in which {which} stands "
                    f"({place.place})",
                )
            )
    lines += [line for record in places for line in _reading(record, facts)]
    for output in made:
        lines += _writing(output, facts)
    lines += _what_struck(lines, struck, exits, is_lost=not made)
    if not made:
        lines.append((None, "", f"no output of {which} was committed"))
    untimed = [line for line in lines if line[0] is None]
    timed = sorted((line for line in lines if line[0] is not None), key=lambda line: line[0] or 0)
    return (untimed + timed)[:LINES_MAX]


def _what_struck(
    lines: Sequence[Line], struck: Sequence[Struck], exits: Sequence[Exit], *, is_lost: bool
) -> list[Line]:
    """Return the faults and exits of the instances in these events, and the faults of brokers.

    Only faults and exits between the first and the last event are returned, and for a lost record
    also the first fault after its last event.
    """
    times = [at for at, *_ in lines if at is not None]
    if not times:
        return []
    who = {name for _, name, _ in lines}
    first, last = min(times), max(times)
    found: list[tuple[float, float, str, str]] = [
        (x.at_s, max(x.until_s, x.at_s), x.instance, f"FAULT {x.what}")
        for x in struck
        if x.is_made and (x.instance in who or not x.instance)
    ]
    found += [
        (at, at, name, f"ended by itself with code {code}, and was started again")
        for at, name, code in exits
        if name in who
    ]
    between = [x for x in found if x[0] <= last and x[1] >= first]
    behind = sorted(x for x in found if x[0] > last)[: int(is_lost)]
    return [(at, name, what) for at, _, name, what in between + behind]


def _reading(record: LogRecord, facts: Sequence[Told]) -> list[Line]:
    """Return the fetches of a record, and each instance's first commit past the record.

    Fetches that repeat within AGAIN_S count once.
    """
    lines: list[Line] = []
    at = (record.topic, record.partition)
    reader, read_s = "", 0.0
    readers, covered = set[str](), set[str]()
    for fact in facts:
        if not isinstance(fact, Fetched | Committed) or (fact.topic, fact.partition) != at:
            continue
        if isinstance(fact, Fetched):
            if not fact.first <= record.offset < fact.end:
                continue
            if reader != fact.instance or fact.at_s > read_s + AGAIN_S:
                reader, read_s = fact.instance, fact.at_s
                lines.append((fact.at_s, fact.instance, f"fetched it ({record.place})"))
                covered.discard(fact.instance)
                readers.add(fact.instance)
        elif fact.offset > record.offset and fact.instance in readers - covered:
            covered.add(fact.instance)
            name = fact.transactional_id
            how = f"in transaction {name}" if name else "outside of transactions"
            lost = ", and never got an answer" if fact.is_lost else ""
            lines.append(
                (
                    fact.at_s,
                    fact.instance,
                    f"committed offset {fact.offset} of {fact.topic}/{fact.partition} for group "
                    f"{fact.group} {how}{lost}",
                )
            )
    return lines


def _writing(output: LogRecord, facts: Sequence[Told]) -> list[Line]:
    wrote = [
        f
        for f in facts
        if isinstance(f, Wrote)
        and (f.topic, f.partition) == (output.topic, output.partition)
        and f.first <= output.offset < f.end
    ]
    if not wrote:
        return [(None, "", f"its output stands at {output.place}")]
    fact = wrote[0]
    how = (
        f"in transaction {fact.transactional_id} (producer {fact.producer_id}, epoch "
        f"{fact.producer_epoch})"
        if fact.transactional_id
        else "with an idempotent producer"
        if fact.producer_id >= 0
        else f"with a plain producer, acks={'all' if fact.acks == -1 else fact.acks}"
    )
    lost = "; the answer was lost" if fact.is_lost else ""
    lines: list[Line] = [(fact.at_s, fact.instance, f"wrote its output {output.place} {how}{lost}")]
    for end in facts:
        if (
            isinstance(end, TransactionEnded)
            and fact.transactional_id == end.transactional_id
            and end.producer_id == fact.producer_id
            and end.at_s >= fact.at_s
        ):
            word = "committed" if end.is_committed else "aborted"
            heard = "; the answer was lost" if end.is_lost else ""
            lines.append((end.at_s, end.instance, f"{word} that transaction{heard}"))
            break
    return lines


def words(lines: Sequence[Line], start_s: float) -> list[str]:
    return [
        f"  {'' if at is None else f'{at - start_s:7.3f} s':>9}  {who:<12} {what}"
        for at, who, what in lines
    ]

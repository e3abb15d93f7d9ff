"""All combinations of transaction states and requests, as plain data.

A case has a state, the way in which a transactional id reached the state, and its first epoch. It
also has a request in one version, and the relation between the request's producer id and epoch and
the coordinator's. The answers of Apache Kafka to all cases are in `recorded/transactions.json`.
"""

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

FIXTURE = (Path(__file__).parents[1] / "recorded") / "transactions.json"


class Phase(Enum):
    """The event, if any, after a case is prepared and before its request is sent."""

    CALM = "nothing"
    TIMED_OUT = "the timeout of the transaction passes, and it is aborted"
    HELD = "the broker that leads one of the partitions is paused, so its marker is not written"


class State(NamedTuple):
    """A state of a transactional id.

    `version` is the transaction version of the client that reached it.
    """

    name: str
    version: int = 1
    phase: Phase = Phase.CALM


class Request(NamedTuple):
    """A request and its versions, of which `telling` are also sent at other epochs than 0."""

    name: str
    api_key: int
    versions: tuple[int, ...]
    telling: tuple[int, ...]
    has_identity: bool = True


class Case(NamedTuple):
    """A transactional id in one state, and a request that is sent about it.

    `start_epoch` is the epoch of InitProducerId before the transaction began.
    """

    state: State
    start_epoch: int
    request: Request
    version: int
    relation: str

    def __str__(self) -> str:
        return (
            f"{self.state.name}, from epoch {self.start_epoch}: {self.request.name} "
            f"v{self.version}, {self.relation}"
        )


def _both(name: str, phase: Phase = Phase.CALM) -> tuple[State, State]:
    return State(f"{name} V1", 1, phase), State(f"{name} V2", 2, phase)


NONE, EMPTY, BUMPED = State("none"), State("Empty"), State("Empty, bumped by its owner")
STATES = (
    NONE,
    EMPTY,
    BUMPED,
    *_both("Ongoing"),
    *_both("PrepareCommit", Phase.HELD),
    *_both("PrepareAbort", Phase.HELD),
    *_both("PrepareAbort by fence", Phase.HELD),
    *_both("CompleteCommit"),
    *_both("CompleteAbort"),
    *_both("CompleteAbort by fence"),
    *_both("CompleteAbort by timeout", Phase.TIMED_OUT),
)
_RANGE = {22: 6, 24: 4, 25: 5, 26: 6, 28: 6}  # 24: from 4 on brokers ask, in batches


def _request(name: str, key: int, *telling: int, since: int = 0, **fields: bool) -> Request:
    return Request(name, key, tuple(range(since, _RANGE[key])), telling, **fields)


INIT = _request("InitProducerId", 22, 3, 5, has_identity=False)
REQUESTS = (
    INIT,
    _request("InitProducerId of its owner", 22, 3, 5, since=3),
    _request("AddPartitionsToTxn, known", 24, 3),
    _request("AddPartitionsToTxn, new", 24, 1, 3),
    _request("AddOffsetsToTxn, known", 25, 4),
    _request("AddOffsetsToTxn, new", 25, 1, 4),
    _request("TxnOffsetCommit, known", 28, 3, 5),
    _request("TxnOffsetCommit, new", 28, 3, 4, 5),
    _request("EndTxn commit", 26, 1, 4, 5),
    _request("EndTxn abort", 26, 1, 4, 5),
    Request("Produce, next", 0, (10, 11, 12), (11, 12)),
    Request("Produce, from 0", 0, (10, 11, 12), (11, 12)),
    Request("Produce, new", 0, (10, 11, 12), (10, 11, 12)),
)
START_EPOCHS = (0, 1, 32764, 32765, 32766)
# older, equal, newer: than the coordinator's epoch, with its producer id. client: the producer's
# own last identity, a case of its own where the coordinator has changed to another producer id.
RELATIONS = ("older", "equal", "newer", "another producer", "client")


def cases() -> Iterator[Case]:
    """Yield cases of all versions from epoch 0, and of `telling` versions from other epochs."""
    for state in STATES:
        for start in START_EPOCHS if state != NONE else (0,):
            for request in REQUESTS:
                versions = request.versions if start == 0 else request.telling
                relations = RELATIONS if request.has_identity else ("nobody",)
                for version in versions:
                    for relation in relations:
                        if relation != "client" or _may_rotate(state, start):
                            yield Case(state, start, request, version, relation)


def _may_rotate(state: State, start: int) -> bool:
    return start >= 32765 and state.name.startswith("Complete")


# --- the file: a row is a list of equal answers

_Place = tuple[int, int, int]  # of a state, a request and a relation, in the order of the file
_ALL_RELATIONS = (*RELATIONS, "nobody")


def write(path: Path, kafka_version: str, answers: dict[Case, str]) -> None:
    """Write a row for each answer, with all versions and first epochs that give this answer."""
    asked: dict[_Place, set[tuple[int, int]]] = {}
    rows: dict[tuple[_Place, str], set[tuple[int, int]]] = {}
    for case, answer in answers.items():
        place = (
            STATES.index(case.state),
            REQUESTS.index(case.request),
            _ALL_RELATIONS.index(case.relation),
        )
        asked.setdefault(place, set()).add((case.version, case.start_epoch))
        rows.setdefault((place, answer), set()).add((case.version, case.start_epoch))
    lines = []
    for (place, answer), pairs in rows.items():
        for versions, starts in _rectangles(pairs, asked[place]):
            names = STATES[place[0]].name, REQUESTS[place[1]].name, _ALL_RELATIONS[place[2]]
            row = [*names, _ranges(versions), _ranges(starts), answer]
            lines.append((place, versions, starts, json.dumps(row)))
    lines.sort()
    body = ",\n".join(line[-1] for line in lines)
    path.write_text(f'{{"kafka": {json.dumps(kafka_version)}, "answers": [\n{body}\n]}}\n')


def _rectangles(
    pairs: set[tuple[int, int]], asked: set[tuple[int, int]]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield versions and first epochs, all combinations of which are in `pairs` or not in `asked`.

    Together the combinations contain all pairs of (version, first epoch) in `pairs`.
    """
    versions, starts = sorted({v for v, _ in pairs}), sorted({s for _, s in pairs})
    if {(v, s) for v in versions for s in starts} & asked == pairs:
        yield versions, starts
        return
    grouped: dict[tuple[int, ...], list[int]] = {}
    for start in starts:
        grouped.setdefault(tuple(v for v in versions if (v, start) in pairs), []).append(start)
    for some, of_starts in grouped.items():
        yield list(some), of_starts


def _ranges(numbers: list[int]) -> str:
    """Format 1, 2, 3, 7 as "1-3 7"."""
    words: list[str] = []
    for number in numbers:
        first, _, last = words[-1].partition("-") if words else ("", "", "")
        if words and number == int(last or first) + 1:
            words[-1] = f"{first}-{number}"
        else:
            words.append(str(number))
    return " ".join(words)


def _numbers(ranges: str) -> list[int]:
    found: list[int] = []
    for word in ranges.split():
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def read(path: Path = FIXTURE) -> dict[Case, str]:
    states = {state.name: state for state in STATES}
    requests = {request.name: request for request in REQUESTS}
    asked = set(cases())
    answers: dict[Case, str] = {}
    for state, request, relation, versions, starts, answer in json.loads(path.read_text())[
        "answers"
    ]:
        for version in _numbers(versions):
            for start in _numbers(starts):
                case = Case(states[state], start, requests[request], version, relation)
                assert case not in answers, f"two answers: {case}"
                if case in asked:
                    answers[case] = answer
    return answers

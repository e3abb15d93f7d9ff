"""Bring a transactional id into a state, and send one more request with that id.

Answers are recorded in terms that do not depend on the cluster. `own+1` is the producer id at the
start of the case, at its first epoch plus one. `new 0` is another producer id at epoch 0.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from oncelog.wire.errors import ErrorCode

from ...waiting import until
from .cases import BUMPED, EMPTY, NONE, Case, Phase
from .requests import (
    CALM,
    HELD,
    KNOWN_GROUP,
    LONG_MS,
    NEW_GROUP,
    SHORT_MS,
    TIMEOUT_S,
    Held,
    TransactionalRequests,
    error_of,
)

T = TypeVar("T")
U = TypeVar("U")
_OTHER_PRODUCER = 500_000_000


@dataclass(slots=True)
class Prepared:
    """A case with its transactional id, and the producer id and epoch that the producer has."""

    case: Case
    transactional_id: str
    own_id: int
    producer_id: int
    producer_epoch: int


class Stage(TransactionalRequests):
    """A cluster on which transactional ids are brought into states, and then get a request."""

    def settled(self, prepared: Prepared) -> Held | None:
        """Return the coordinator's state once no marker is in flight.

        In phase HELD a marker stays in flight, so the state is returned at once.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            held = self.held(prepared.transactional_id)
            is_moving = held is not None and held.state.startswith("Prepare")
            if not is_moving or prepared.case.state.phase is Phase.HELD:
                return held
            assert time.monotonic() < deadline, f"{prepared.case} stays in {held}"
            time.sleep(0.004)

    # --- preparing

    def prepare(self, case: Case, name: str) -> Prepared:
        """Bring the id as close to its state as possible before the pause or the timeout."""
        if case.state == NONE:
            producer_id = self.peer(min(self.nodes)).new_producer_id()
            return Prepared(case, name, producer_id, producer_id, 0)
        timeout_ms = SHORT_MS if case.state.phase is Phase.TIMED_OUT else LONG_MS
        identity = self._started(case, name, timeout_ms)
        prepared = Prepared(case, name, identity[0], *identity)
        if case.state == BUMPED:
            answer = self.insist(lambda: self.init(name, 4, identity))
            prepared.producer_id, prepared.producer_epoch = (
                answer.producer_id,
                answer.producer_epoch,
            )
        if case.state not in (EMPTY, BUMPED):
            self._begin(prepared)
            if case.state.phase is Phase.CALM:
                self.conclude(prepared)
        return prepared

    def _started(self, case: Case, name: str, timeout_ms: int) -> tuple[int, int]:
        epochs: list[int] = []
        for _ in range(2):
            answer = self.insist(lambda: self.init(name, timeout_ms=timeout_ms))
            epochs.append(answer.producer_epoch)
            if answer.producer_epoch == case.start_epoch:
                return answer.producer_id, answer.producer_epoch
        raise AssertionError(f"{case}: the epochs are {epochs}")

    def _begin(self, prepared: Prepared) -> None:
        name, identity = prepared.transactional_id, (prepared.producer_id, prepared.producer_epoch)
        places = [(CALM, 0)]
        if prepared.case.state.phase is Phase.HELD:
            places.append((HELD, 0))
        if prepared.case.state.version == 1:
            self.insist(lambda: self.add_partitions(name, 3, identity, *places))
            self.insist(lambda: self.add_offsets(name, 3, identity, KNOWN_GROUP))
            self.insist(lambda: self.produce(name, 11, identity, places[0], 0))
        else:
            for place in places:
                self.insist(lambda place=place: self.produce(name, 12, identity, place, 0))
            self.insist(lambda: self.commit_offset(name, 5, identity, KNOWN_GROUP))

    def conclude(self, prepared: Prepared) -> None:
        """Bring the id into its state, after the partition was paused or the timeout passed."""
        state = prepared.case.state
        name, identity = prepared.transactional_id, (prepared.producer_id, prepared.producer_epoch)
        if state.phase is Phase.TIMED_OUT:
            until(
                lambda: (held := self.held(name)) is not None and held.state == "CompleteAbort",
                f"{prepared.case}: not aborted",
            )
        elif state.name.startswith(("Prepare", "Complete")):
            if "by fence" in state.name:
                error = error_of(self.init(name))
                assert error == ErrorCode.CONCURRENT_TRANSACTIONS, f"{prepared.case}: {error}"
            else:
                version = 4 if state.version == 1 else 5
                self.insist(lambda: self.end(name, version, identity, "Commit" in state.name))
            self.settled(prepared)

    # --- asking

    def ask(self, prepared: Prepared) -> str:
        """Send the request twice, and return the state before, and each answer with its effect."""
        before = self.held(prepared.transactional_id)
        words = [_shown(before, prepared)]
        identity = _identity(prepared, before)
        for _ in range(2):
            answer = self._answer(prepared, identity, before)
            after = self.settled(prepared)
            word = _told(answer, prepared)
            words.append(word if after == before else f"{word} -> {_shown(after, prepared)}")
            before = after
        if before is not None and before.state == "Ongoing":  # leave no open transaction
            self.end(prepared.transactional_id, 4, before[1:3], False)
        return " | ".join(words)

    def _answer(self, prepared: Prepared, identity: tuple[int, int], before: Held | None) -> Any:
        """Return the answer to the case's request.

        After the last marker the coordinator writes a record. Until then the request is repeated.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._question(prepared, identity)
            is_complete = before is not None and before.state.startswith("Complete")
            error = None if isinstance(answer, str) else error_of(answer)
            if not is_complete or error != ErrorCode.CONCURRENT_TRANSACTIONS:
                return answer
            assert time.monotonic() < deadline, f"{prepared.case}: {before}, and yet pending"
            time.sleep(0.004)

    def _question(self, prepared: Prepared, identity: tuple[int, int]) -> Any:
        name, version = prepared.transactional_id, prepared.case.version
        kind, _, variant = prepared.case.request.name.partition(", ")
        if kind == "InitProducerId":
            return self.init(name, version)
        if kind == "InitProducerId of its owner":
            return self.init(name, version, identity)
        if kind == "AddPartitionsToTxn":
            return self.add_partitions(name, version, identity, (CALM, int(variant == "new")))
        if kind == "AddOffsetsToTxn":
            group = NEW_GROUP if variant == "new" else KNOWN_GROUP
            return self.add_offsets(name, version, identity, group)
        if kind == "TxnOffsetCommit":
            group = NEW_GROUP if variant == "new" else KNOWN_GROUP
            return self.commit_offset(name, version, identity, group)
        if kind == "Produce":
            place = CALM, int(variant == "new")
            return self.produce(name, version, identity, place, int(variant == "next"))
        return self.end(name, version, identity, kind == "EndTxn commit")


def run_all(work: Callable[[T], U], items: Iterable[T], threads: int = 6) -> list[U]:
    """Call `work` for all items, in several threads, and return the results in order."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def play(
    stage: Stage,
    chosen: Iterable[Case],
    names: Mapping[Case, str],
    hold: Callable[[], None] = lambda: None,
    askers: int = 6,
) -> dict[Case, str]:
    """Return the answers to these cases, each with its own transactional id.

    `hold` is called to prevent markers in HELD. askers: the number of concurrent requests. A Kafka
    broker asks the coordinator about several producers in one request of one version. With more
    than one asker a producer may therefore get error code 48 in place of 120, or the reverse.
    """
    by_phase: dict[Phase, list[Case]] = {}
    for case in chosen:
        by_phase.setdefault(case.state.phase, []).append(case)
    answers: dict[Case, str] = {}
    for phase in (Phase.CALM, Phase.TIMED_OUT, Phase.HELD):
        wanted = by_phase.get(phase, [])
        prepared = run_all(lambda case: stage.prepare(case, names[case]), wanted)
        if phase is Phase.HELD and wanted:
            hold()
        if phase is not Phase.CALM:
            run_all(stage.conclude, prepared)
        if phase is Phase.HELD and wanted:
            stage.wait_for_markers()
        answers.update(zip(wanted, run_all(stage.ask, prepared, threads=askers), strict=True))
    return answers


def _identity(prepared: Prepared, held: Held | None) -> tuple[int, int]:
    """Return the producer id and epoch of the case's request.

    `held` has those of the coordinator, from which they differ by the case's relation.
    """
    relation = prepared.case.relation
    if relation == "client":
        return prepared.producer_id, prepared.producer_epoch
    if held is None:
        producer_id, epoch = prepared.producer_id, prepared.producer_epoch
    else:
        producer_id, epoch = held.producer_id, held.producer_epoch
    if relation == "another producer":
        return producer_id + _OTHER_PRODUCER, epoch
    step = {"older": -1, "newer": 1}.get(relation, 0)
    return producer_id, (epoch + step + 0x8000) % 0x10000 - 0x8000


def _told(answer: Any, prepared: Prepared) -> str:
    if isinstance(answer, str):
        return answer
    name = ErrorCode(error_of(answer)).name
    if not hasattr(answer, "producer_id") or answer.producer_id < 0:
        return name
    return f"{name} {_pair(answer.producer_id, answer.producer_epoch, prepared)}"


def _shown(held: Held | None, prepared: Prepared) -> str:
    if held is None:
        return "none"
    pair = _pair(held.producer_id, held.producer_epoch, prepared)
    return f"{held.state} {pair}" + (f" in {held.partitions}" if held.partitions else "")


def _pair(producer_id: int, epoch: int, prepared: Prepared) -> str:
    case = prepared.case
    if producer_id == prepared.own_id and case.state != NONE:
        return f"own{epoch - case.start_epoch:+d}"
    return f"new {epoch}"

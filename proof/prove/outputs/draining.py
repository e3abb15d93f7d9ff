"""Waits after the faults until nothing changes any more, and lists the finished inputs."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ....client.blocking import BlockingAdmin
from ....deploy.cluster.failure import Failure
from ....wire.errors import KafkaError
from ....wire.identifiers import TopicPartition
from ..application import Application
from ..facts import Unrest
from ..judgement import Judgement, inputs_are
from ..observed import Observed, wait_for
from ..relation import LogRecord
from .database import DatabaseOutputs
from .reading import READ_TIMEOUT_S, OutputReader, in_order

LATEST = -1
TELL_EACH_S, REST_S = 5.0, 3.0
QUIET_S = 1.5  # wait after nothing is missing: later outputs would be duplicates
# When something is, and the group has committed all inputs. Where offsets are kept elsewhere, only
# fetches are seen, which may be long before the output.
QUIET_AND_THROUGH_S = 4.0
LOOK_EACH_S = 0.25
ANSWER_S = 3.0  # of a cluster that is asked once more for open transactions
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
HELD_BACK = (
    "a transaction is still open, so committed records behind it cannot be read; wait for its "
    "timeout with --drain SECONDS"
)
Inputs = list[tuple[str, LogRecord]]
Judge = Callable[[Inputs, list[LogRecord], Callable[[LogRecord], bool]], Judgement]


@dataclass(frozen=True, slots=True)
class Pace:
    """The durations of the wait after the faults.

    timeout_s: the longest wait. silence_s: an application without any change for this time counts
    as stalled. rest_s: an instance is at rest if for this time it has not ended by itself and has
    had no failed attempts.
    """

    timeout_s: float
    silence_s: float
    rest_s: float = REST_S


class Drain:
    """The wait after the faults until the application has processed its inputs.

    why: why the application did not process all inputs, as text, or empty. unrest: the instance
    that was not at rest at the deadline.
    """

    def __init__(
        self,
        admin: BlockingAdmin,
        application: Application,
        reader: OutputReader | DatabaseOutputs,
        observed: Observed,
        inputs: Inputs,
        ends: Mapping[TopicPartition, int],
        outputs: Sequence[TopicPartition],
        judge: Judge,
        pace: Pace,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._admin, self._application, self._reader = admin, application, reader
        self._observed, self._inputs, self._ends = observed, inputs, ends
        self._outputs, self._judge, self._pace = outputs, judge, pace
        self._committed: dict[TopicPartition, int] = {}
        self._say = say
        self._begun_s = time.monotonic()
        self.why = ""
        self.unrest: Unrest | None = None
        self.notes: list[str] = []

    def wait(self) -> None:
        """Wait until nothing changes any more, or until the deadline.

        If inputs are pending and nothing changes, the application is restarted once, and has
        `silence_s` again. If the deadline is earlier, the application has not come to rest.
        """
        begun = moved_s = told_s = self._begun_s = time.monotonic()
        last = (0, 0)
        restarted_s = 0.0
        seen, judgement = (), Judgement()
        while True:
            self._look_at_offsets()
            self._reader.check()
            now = time.monotonic()
            state = (len(self._reader.records), sum(self._committed.values()))
            if state != last:
                last, moved_s = state, now
            quiet_s = now - max(moved_s, restarted_s)
            is_quiet = quiet_s > QUIET_S  # before, judging takes time that the proxy needs
            now_seen = (*state, self._reader.moved_at_s, sum(self._passed().values()))
            if is_quiet and seen != now_seen:
                seen, (judgement, *_) = now_seen, self.judged()
            is_whole = not (judgement.lost or judgement.pending or judgement.wrong)
            is_settled, restless = self._is_settled(), self._restless(now)
            if (
                is_settled
                and restless is None
                and (
                    (is_whole and is_quiet)
                    or (self._committed and self._is_through() and quiet_s > QUIET_AND_THROUGH_S)
                    or quiet_s > self._pace.silence_s
                )
            ):
                break
            if judgement.pending and not restarted_s and self._is_stuck(now, quiet_s):
                self._restart()
                restarted_s = time.monotonic()  # the new instances have the whole time again
            if now - begun > self._pace.timeout_s:
                moves = "" if is_quiet else "outputs or offsets still moved"
                if restarted_s > moved_s and quiet_s <= self._pace.silence_s:
                    moves = f"prove restarted it only {quiet_s:.0f} s before"
                self._end_restless(restless, moves)
                break
            if now - told_s > TELL_EACH_S:
                told_s = now
                self._say(self._waiting_for(judgement, restless, is_settled=is_settled))
            time.sleep(LOOK_EACH_S)
        if not self._is_through():
            self.why, *said = self._stands_still().split("\n")
            self.notes += said

    def _is_stuck(self, now: float, quiet_s: float) -> bool:
        """Return whether some instance had time to work, and there is time for a restart."""
        application, pace = self._application, self._pace
        awake_s = min(map(application.awake_since_s, application.instances), default=0.0)
        is_still = quiet_s > pace.silence_s / 2 and now - awake_s > pace.rest_s
        return is_still and now - self._begun_s < pace.timeout_s - application.stop_timeout_s

    def _restart(self) -> None:
        told = "the application made no progress after the repair, so prove restarted it"
        if hung := self._application.restart_all():
            timeout_s = self._application.stop_timeout_s
            told += f"; {', '.join(hung)} did not end within {timeout_s:.0f} s of SIGTERM"
        self.notes.append(told)

    def _restless(self, now: float) -> Unrest | None:
        """Return an instance that has lately ended by itself or only failed, else None."""
        application, since_s = self._application, now - self._pace.rest_s
        for name in application.instances:
            ended = [at for at, who, _ in application.exits if who == name and at > self._begun_s]
            if ended and ended[-1] > since_s:
                return Unrest(name, f"it ended by itself {_times(len(ended))} after all was mended")
            if why := self._observed.in_vain(name, since_s):
                return Unrest(name, why)
        return None

    def _end_restless(self, restless: Unrest | None, moves: str) -> None:
        """Record at the deadline which part was not at rest.

        moves: why the whole application was not at rest, or empty.
        While outputs still change, open transactions are normal and not reported. If a broker does
        not answer, nothing is known about its transactions.
        """
        if restless is None and moves:
            restless = Unrest("the application", moves)
        if restless is None and not wait_for(self._is_settled, ANSWER_S, LOOK_EACH_S):
            restless = self._holder()
        self._remember(restless, f" within {self._pace.timeout_s:.0f} s")

    def _remember(self, restless: Unrest | None, within: str = "") -> None:
        if restless is not None and self.unrest is None:
            self.unrest = restless
            self.notes.append(
                f"{self.restless}{within}: {restless.why}; a longer drain: --drain SECONDS"
            )

    def _holder(self) -> Unrest:
        """Return the oldest open transaction that the coordinators still list.

        The proxy does not see that a transaction has timed out, so the coordinators are asked.
        """
        open_now = self._observed.open_transactions
        with suppress(KafkaError):
            listed = self._admin.transactions.list_transactions(states=OPEN_STATES)
            still = {each.transactional_id for each in listed}
            open_now = {name: who for name, who in open_now.items() if name in still}
        for name, instance in open_now.items():
            return Unrest(instance or "the application", f"its transaction {name} stayed open")
        return Unrest("the application", "a transaction stayed open")

    def _waiting_for(
        self, judgement: Judgement, restless: Unrest | None, *, is_settled: bool
    ) -> str:
        waited = f"waiting for {time.monotonic() - self._begun_s:.0f} s"
        if restless is not None:
            return f"{waited}: {restless.who} is not at rest: {restless.why}"
        if not is_settled:
            return f"{waited}: {self._holder().why}"
        if judgement.pending:
            return f"{waited}: {inputs_are(len(judgement.pending))} not through"
        return f"{waited}: until nothing moves"

    @property
    def restless(self) -> str:
        """Return a sentence about the instance that was not at rest, or an empty text."""
        return "" if self.unrest is None else f"{self.unrest.who} never came to rest"

    def judged(self, is_last: bool = False) -> tuple[Judgement, Inputs, list[LogRecord]]:
        """Compare the outputs so far with the inputs.

        Return the judgement, the inputs and the outputs. is_last: the application has ended, and
        all of its commits are known.
        """
        if is_last:
            self._read_to_the_end()
        outputs = in_order(self._reader.records)
        found = self._judge(self._inputs, outputs, self._is_passed)
        if is_last and (found.lost or found.wrong):  # or its commit came right after that reading
            is_settled = wait_for(self._is_settled, self._pace.silence_s, LOOK_EACH_S)
            self._read_to_the_end()
            outputs = in_order(self._reader.records)
            is_passed = self._is_passed if is_settled else _nothing_is_passed
            found = self._judge(self._inputs, outputs, is_passed)
            if not is_settled:
                self.why = self.why or HELD_BACK
                self._remember(self._holder())
        return found, self._inputs, outputs

    def _read_to_the_end(self) -> None:
        self._look_at_offsets()
        reader = self._reader
        if isinstance(reader, DatabaseOutputs):
            if not wait_for(reader.look, READ_TIMEOUT_S, LOOK_EACH_S):
                raise Failure(f"The outputs were not read back: {reader.problem}")
            return
        ends = self._admin.list_offsets(dict.fromkeys(self._outputs, LATEST), read_committed=True)
        if not wait_for(lambda: reader.is_at(ends), READ_TIMEOUT_S):
            raise Failure(f"The outputs were not read back within {READ_TIMEOUT_S:.0f} s.")

    # --- how far it is

    def _look_at_offsets(self) -> None:
        for group in list(self._observed.groups):
            with suppress(KafkaError):  # a coordinator that has just moved; or the group is gone
                found = self._admin.groups.committed(group)
                for partition, committed in found.items():
                    offset = int(getattr(committed, "offset", committed))
                    if partition in self._ends:
                        self._committed[partition] = max(self._committed.get(partition, 0), offset)

    def _passed(self) -> Mapping[TopicPartition, int]:
        """Return the committed offset of each partition, or the fetched offsets without commits."""
        return self._committed or self._observed.fetched

    def _is_passed(self, record: LogRecord) -> bool:
        return record.offset < self._passed().get((record.topic, record.partition), 0)

    def _is_through(self) -> bool:
        passed = self._passed()
        return all(self._is_passed(record) for _, record in self._inputs) and bool(passed)

    def _is_settled(self) -> bool:
        """Return whether the LSO of every output partition has reached the partition's end offset.

        The end offsets are requested first, so output that is written after them does not count.
        """
        if not self._outputs:
            return True
        keys = dict.fromkeys(self._outputs, LATEST)
        with suppress(KafkaError):
            ends = self._admin.list_offsets(keys)
            stable = self._admin.list_offsets(keys, read_committed=True)
            return all(stable[each] >= end for each, end in ends.items())
        return False

    def _stands_still(self) -> str:
        application = self._application
        ended = [n for n in application.instances if application.has_ended(n)]
        pending = [(r.topic, r.partition) for _, r in self._inputs if not self._is_passed(r)]
        had = self._observed.had_last(pending[0]) if pending else ""
        running = [had] if had in application.instances else application.instances
        name = (ended or running or application.names)[-1]
        state = "does not stay up" if ended else "runs, but reads no more inputs"
        return f"{name} {state}.{application.told(name)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _nothing_is_passed(record: LogRecord) -> bool:
    return False

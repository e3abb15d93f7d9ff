"""A model of the sink's environment, with a cluster, Spark, its workers, and failures.

One step of one generator is one event in the model. A seed chooses the event. The protocol, the
decision's records and the workers' ids are real.

Drivers and attempts are killed, frozen and resumed. Several drivers use one checkpoint, and a task
has several attempts. Answers are lost, and their requests arrive again much later. The control
transaction may time out, and idle ids may be forgotten.

`Parts` (model_parts.py) removes parts of the protocol, to show that the model detects the loss.
"""

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any

from oncelog.client import PreparedTransaction
from oncelog.pipeline.sink import steps
from oncelog.pipeline.sink.batch_check import Terms
from oncelog.pipeline.sink.child_ids import ChildIds
from oncelog.pipeline.sink.decision import Decision, decode, encode
from oncelog.pipeline.sink.modes import Mode
from oncelog.pipeline.sink.names import control_id
from oncelog.pipeline.sink.protocol import SinkProtocol
from oncelog.pipeline.sink.steps import Phase
from oncelog.pipeline.sink.stop_words import SinkStopped

from .model_cluster import SINK, Handle, ModelCluster, Refused, handle_of
from .model_parts import Parts, Reduced, Size, Verdict

QUERY = "query"
WHOLE, SMALL = Parts(), Size()
EXECUTORS = 2  # alive at a time
STEPS_MAX, RUNS_MAX, RECOVERIES_MAX = 6_000, 8, 30
Process = Generator[None, None, None]


class SinkModel:
    def __init__(self, seed: int, parts: Parts, size: Size) -> None:
        self.random, self.parts, self.size = random.Random(seed), parts, size
        self.cluster = ModelCluster(children_have_v2=parts.is_v2)
        self.found_open: set[str] = set()
        self.checkpoint = -1
        self.live: list[tuple[str, Process]] = []
        self.frozen: list[tuple[str, Process]] = []
        self.late: list[Callable[[], object]] = []
        self.executors: list[ChildIds] = []
        self.errors: Counter[str] = Counter()
        self.is_calm = self.is_torn = False

    # --- requests

    def ask(self, request: Callable[[], Any]) -> Generator[None, None, tuple[Any, bool]]:
        """Repeat a request until it is answered. Return the answer and whether one was lost."""
        is_lost = False
        while True:
            yield
            answer = request()
            if self.is_calm or self.random.random() > 0.05:
                return answer, is_lost
            is_lost = True
            if self.parts.repeats and self.random.random() < 0.5:
                self.late.append(request)

    # --- Spark's side

    def rows_of(self, batch: int, partition: int) -> int:
        if batch >= self.size.batches or (batch * 7 + partition * 3) % 4 == 1:
            return 0
        return self.size.rows

    def executor(self) -> ChildIds:
        """Return the transactional ids of a running executor, or sometimes of a new executor."""
        if not self.executors or self.random.random() < 0.1:
            word = f"{len(self.executors):08x}"
            self.executors.append(ChildIds(word=word))
        return self.random.choice(self.executors[-EXECUTORS:])

    def name_of(self, ids: ChildIds, run: steps.RunTasks, place: tuple[int, int]) -> str:
        generation = run.generation if self.parts.has_generations else 0
        partition, attempt = place
        if partition < len(run.committed) and not self.parts.ids_are_taken_out:
            return run.committed[partition]
        if self.parts.ids_of_attempts:
            return ids.take(SINK, generation, run.batch_id, run.committed)
        word = f"{run.batch_id % 2:04x}{partition:04x}"
        return f"oncelog.spark.{SINK}.g{generation}.{word}.{attempt}"

    def attempt(self, run: steps.RunTasks, place: tuple[int, int], kept: dict[int, Any]) -> Process:
        partition = place[0]
        count = self.rows_of(run.batch_id, partition)
        if count == 0:
            yield
            kept.setdefault(partition, steps.TaskReport(
                partition_id=partition, record_count=0, child=None
            ))  # fmt: skip
            return
        ids = self.executor()
        child = yield from self.write(ids, run, place, count)
        if self.parts.ids_of_attempts and self.parts.ids_are_taken_out:
            generation = run.generation if self.parts.has_generations else 0
            ids.put_back(child.transactional_id, SINK, generation, run.batch_id)
        kept.setdefault(partition, steps.TaskReport(
            partition_id=partition, record_count=count, child=child
        ))  # fmt: skip
        yield

    def write(
        self, ids: ChildIds, run: steps.RunTasks, place: tuple[int, int], count: int
    ) -> Generator[None, None, PreparedTransaction]:
        handle: Handle | None = None
        while handle is None:
            name = self.name_of(ids, run, place)
            answer, is_lost = yield from self.ask(lambda name=name: self.cluster.init(name))
            if not is_lost or not self.parts.abandons_ids:
                handle = answer
        for index in range(count):
            row = (run.batch_id, place[0], index)
            yield from self.ask(lambda i=index, row=row: self.cluster.produce(handle, i, row))
        return PreparedTransaction(*handle, is_v2=self.parts.is_v2)

    def driver(self) -> Process:
        protocol = SinkProtocol(SINK, mode=self.parts.mode)
        if self.parts != WHOLE:
            terms = Terms(first_batch=None if self.parts.decides else self.checkpoint + 1)
            protocol = Reduced(SINK, mode=self.parts.mode, terms=terms)
            protocol.parts = self.parts
        control: list[Handle] = []
        batch = self.checkpoint + 1
        last = self.size.batches if self.is_calm else self.size.batches - 1
        while batch <= last:
            event: steps.Event = steps.BatchGiven(
                query_id=QUERY, batch_id=batch, is_long_after=self.random.random() < 0.05
            )
            while True:
                effect = protocol.step(event)
                if isinstance(effect, steps.BatchOver):
                    break
                event = yield from self.perform(effect, control)
            if protocol.phase is not Phase.READY:
                return  # the query has failed
            yield
            self.checkpoint = max(self.checkpoint, batch)
            yield
            yield from self.sweep(protocol)
            batch += 1

    def sweep(self, protocol: SinkProtocol) -> Process:
        """Abort open transactions of late attempts between batches. The next batch may begin
        meanwhile.
        """
        while self.random.random() < (0 if self.is_calm else 0.3):
            assert protocol.leftovers is not None
            names = protocol.leftovers.among(self.cluster.listed())
            yield
            protocol.swept(names)
            for name in names:
                if self.random.random() < 0.1:
                    break
                yield from self.ask(lambda name=name: self.cluster.init(name))

    def perform(
        self, effect: steps.Effect, control: list[Handle]
    ) -> Generator[None, None, steps.Event]:
        cluster = self.cluster
        match effect:
            case steps.ReadDecision():
                yield
                return steps.DecisionRead(decode(SINK, cluster.decisions))
            case steps.FenceControlId():
                handle, _ = yield from self.ask(lambda: cluster.init(control_id(SINK)))
                control[:] = [handle]
                return steps.Fenced()
            case steps.ListOpen():
                yield
                return steps.OpenListed(cluster.listed())
            case steps.WriteDecision():
                return (yield from self.write_decision(effect.decision, control))
            case steps.CommitChildren():
                return (yield from self.end_children(effect.children, commit=True))
            case steps.RollBackChildren():
                return (yield from self.end_children(effect.children, commit=False))
            case steps.DescribeChildren():
                return (yield from self.describe(effect.children))
            case steps.AbortChildren():
                for name in effect.names:
                    yield from self.ask(lambda name=name: cluster.init(name))
                return steps.ChildrenAborted()
            case steps.RunTasks():
                return (yield from self.run_tasks(effect))
            case _:
                raise AssertionError(effect)

    def write_decision(
        self, decision: Decision, control: list[Handle]
    ) -> Generator[None, None, steps.Event]:
        handle = control[0]
        try:
            for index, record in enumerate(encode(SINK, decision)):
                yield from self.ask(
                    lambda i=index, record=record: self.cluster.produce(handle, i, record)
                )
            self.stand_still()  # under a live driver
            yield from self.ask(lambda: self.cluster.end(handle, True))
        except Refused as refused:
            return steps.ControlInDoubt(str(refused))
        control[0] = (handle[0], handle[1], handle[2] + 1)
        return steps.ControlCommitted()

    def end_children(
        self, children: Iterable[PreparedTransaction], *, commit: bool
    ) -> Generator[None, None, steps.Event]:
        refused: dict[str, str] = {}
        fine = set[str]() if commit else {"90"}
        if commit and not (
            self.parts.mode is Mode.TRANSACTIONAL and self.parts.minds_the_forgotten
        ):
            fine = {"49"}
        for child in children:
            handle = handle_of(child)
            try:
                yield from self.ask(lambda handle=handle: self.cluster.end(handle, commit))
            except Refused as problem:
                if str(problem) not in fine:
                    refused[child.transactional_id] = str(problem)
        if refused:
            forgotten = tuple(name for name, why in refused.items() if why == "49")
            return steps.ChildrenRefused(tuple(refused), "refused", forgotten)
        return steps.ChildrenCommitted() if commit else steps.ChildrenAborted()

    def describe(
        self, children: Iterable[PreparedTransaction]
    ) -> Generator[None, None, steps.Event]:
        found: dict[str, str] = {}
        for child in children:
            yield
            how = self.cluster.standing(handle_of(child))
            found[child.transactional_id] = how
            if how == "open":
                self.found_open.add(child.transactional_id)
        opened = tuple(name for name, how in found.items() if how == "open")
        return steps.ChildrenDescribed(
            opened, tuple(n for n, how in found.items() if how == "ended")
        )

    def run_tasks(self, run: steps.RunTasks) -> Generator[None, None, steps.Event]:
        kept: dict[int, Any] = {}
        attempts = [0] * self.size.tasks

        def launch(partition: int) -> None:
            place = (partition, attempts[partition])
            attempts[partition] += 1
            self.live.append(("attempt", self.attempt(run, place, kept)))

        for partition in range(self.size.tasks):
            launch(partition)
        looks = 0
        while len(kept) < self.size.tasks:
            looks += 1
            if looks % 12 == 0:  # one task seems lost or slow, so a second attempt starts beside it
                launch(self.random.choice([p for p in range(self.size.tasks) if p not in kept]))
            if not self.is_calm and self.random.random() < 0.003:
                return steps.TasksFailed()
            yield
        return steps.TasksDone(tuple(kept.values()))

    # --- events

    def run(self) -> None:
        """Run with random failures for a while, and then calmly until all rows are written."""
        self.live.append(("driver", self.driver()))
        drivers = 1
        for _ in range(STEPS_MAX):
            if not self.live and not self.frozen:
                break
            luck = self.random.random()
            if luck < 0.015 and drivers < RUNS_MAX:
                self.end_one("driver", freezes=self.random.random() < 0.5)
                self.stand_still()
                self.live.append(("driver", self.driver()))
                drivers += 1
            elif luck < 0.03 and self.frozen:
                self.live.append(self.frozen.pop(self.random.randrange(len(self.frozen))))
            elif luck < 0.04:
                self.end_one("attempt", freezes=self.parts.sleepers and self.random.random() < 0.7)
            elif luck < 0.05:
                self.forget_something()
            elif luck < 0.07 and self.late:
                self.arrive_late()
            elif self.live:
                self.advance(self.random.choice(self.live))
            if self.is_torn:
                break
            if not any(kind == "driver" for kind, _ in self.live) and self.has_more():
                self.live.append(("driver", self.driver()))
        self.settle()

    def has_more(self) -> bool:
        return self.checkpoint < self.size.batches - 1

    def end_one(self, kind: str, *, freezes: bool) -> None:
        found = [process for process in self.live if process[0] == kind]
        if found:
            process = self.random.choice(found)
            self.live.remove(process)
            if freezes:
                self.frozen.append(process)

    def forget_something(self) -> None:
        names = list(self.cluster.ids)
        if not names:
            return
        name = self.random.choice(names)
        is_control = name == control_id(SINK)
        if not is_control and self.parts.mode is Mode.TRANSACTIONAL:
            if self.parts.outages or name not in self.found_open:
                self.cluster.time_out(name)
            if (self.parts.outages and self.random.random() < 0.3) or name not in self.unfinished():
                self.cluster.forget(name)
            return
        times_out = self.random.random() < 0.3 if is_control else not self.parts.prepares
        if times_out:
            self.cluster.time_out(name)
        elif not is_control or self.random.random() < 0.3:
            self.cluster.forget(name)

    def has_alarm(self) -> bool:
        """Return whether the newest decision reports lost children."""
        decision = decode(SINK, self.cluster.decisions)
        return decision is not None and bool(decision.lost)

    def stand_still(self) -> None:
        """Sometimes let the transactions of some ids time out, as in a long pause."""
        can_be = self.parts.has_outages and not self.is_calm
        share = 0.7 if can_be and self.random.random() < 0.3 else 0
        for name in self.cluster.listed():
            if share and self.random.random() < share:
                self.cluster.time_out(name)

    def unfinished(self) -> set[str]:
        """Return the ids in the newest decision that may still have to be committed."""
        decision = decode(SINK, self.cluster.decisions)
        return set() if decision is None else {c.transactional_id for c in decision.unfinished}

    def arrive_late(self) -> None:
        request = self.late.pop(self.random.randrange(len(self.late)))
        try:
            request()
        except Refused:
            self.errors["late"] += 1

    def advance(self, process: tuple[str, Process]) -> None:
        try:
            next(process[1])
        except StopIteration:
            self.live.remove(process)
        except (Refused, SinkStopped) as problem:
            self.live.remove(process)
            self.is_torn |= "IS TORN" in str(problem) and self.has_alarm()
            self.errors[f"{process[0]}: {type(problem).__name__}"] += 1

    def settle(self) -> None:
        """Finish all drivers and attempts, then start drivers until one has written all batches."""
        self.live += self.frozen
        self.frozen = []
        while self.late:
            self.arrive_late()
        self.is_calm = True
        for _ in range(RECOVERIES_MAX):
            for _ in range(STEPS_MAX):
                if not self.live:
                    break
                self.advance(self.random.choice(self.live))
            if self.checkpoint >= self.size.batches and not self.cluster.listed():
                return
            if self.is_torn:  # only a person can continue here
                return
            self.checkpoint = min(self.checkpoint, self.size.batches - 1)
            self.live.append(("driver", self.driver()))

    def verdict(self) -> Verdict:
        wanted = [
            (batch, partition, index)
            for batch in range(self.size.batches)
            for partition in range(self.size.tasks)
            for index in range(self.rows_of(batch, partition))
        ]
        rows = self.cluster.rows
        return Verdict(
            doubled=sum(1 for row in wanted if rows[row] > 1) + len(rows.keys() - set(wanted)),
            missing=sum(1 for row in wanted if not rows[row]),
            left_open=0 if self.parts.mode is Mode.TRANSACTIONAL else len(self.cluster.listed()),
            is_told=self.has_alarm(),
        )


def run(seed: int, parts: Parts = WHOLE, size: Size = SMALL) -> Verdict:
    """Run the model with a seed, and return the verdict."""
    model = SinkModel(seed, parts, size)
    model.run()
    return model.verdict()

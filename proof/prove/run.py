"""One run, with a cluster, inputs, the application behind the proxy, faults, and the outcome.

    cluster ── feeder: inputs ──▶ topics ◀── proxy ◀── the application's instances
                                    │
                                    └── reader: committed outputs ──▶ judgement

All processes are ended in any case, also by Ctrl-C, SIGTERM, SIGHUP (`interrupts.py`) and `kill -9`
(`guardian.py`).
"""

import secrets
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...client.blocking import BlockingAdmin
from ...deploy.cluster.blocking_admin import blocking_admin
from ...deploy.cluster.ends.guardian import guardian
from ...deploy.cluster.ends.interrupts import ended_as_by_ctrl_c, uninterrupted
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.cluster.private import make_private_directory
from ...deploy.faults.protocol_proxy.proxy import ProtocolProxy
from ...wire.errors import KafkaError
from ...wire.identifiers import TopicPartition
from .application import Application, require_program
from .broker_sessions import SHORT_SESSIONS, with_broker_sessions
from .cluster_access import require_tls, to_other, to_ours
from .diagnosis.listener import DiagnosisListener, places_of
from .facts import Struck
from .feeder import Feeder
from .judgement import Judgement, judge_finals, judge_ids, verdict_of
from .observed import Observed, wait_for
from .outcome import ProveOutcome
from .outputs.database import DatabaseOutputs
from .outputs.draining import REST_S, Drain, Pace
from .outputs.reading import OutputReader, read_all
from .plan import (
    COMMITS,
    INSTANCES_MORE_MAX,
    SLOW_S,
    SURE_EXTRA_S,
    Act,
    AimedFault,
    Timeouts,
    Traits,
    is_possible,
    lowered_timeouts,
    named,
    plan,
    sure_ones,
)
from .relation import ID_HEADER, LogRecord, function, matcher
from .settings import DEFAULT_DRAIN_S, DEFAULT_IN, DEFAULT_OUT, INPUTS_MAX, ProveSettings
from .story import shortest
from .strikes.refusals import Refusals
from .strikes.security import CONFIG
from .striking import Striker

NODES = 3
FAULTS_MAX = 8_000  # the limit of faults, enough for more than an hour
RUN_ENDS_WITHIN_S = 120.0  # of the end of the faults
STOP_S = 20.0  # the part of it for the end of the application and the last reading
DRAIN_MIN_S = 20.0
ENOUGH_OUTPUTS, FIRST_COMMIT_TIMEOUT_S = 20, 6.0
LATEST = -1
AS_IS = Timeouts(session_s=45.0, transaction_s=60.0)  # the defaults of most clients
Say = Callable[[str], None]
Outputs = OutputReader | DatabaseOutputs
T = TypeVar("T")


class Run:
    """One run of `oncelog prove`.

    out: the directory for its files, or None for a temporary directory.
    """

    def __init__(self, settings: ProveSettings, out: Path | None, say: Say) -> None:
        self.settings, self._say = settings, say
        require_program(settings.command)
        if out is not None and out.exists() and any(out.iterdir()):
            raise Failure(f"--keep {out} is not empty. Choose another directory.", exit_code=2)
        self._out = out
        temporary = Path(tempfile.gettempdir()) / f"oncelog-prove-{secrets.token_hex(4)}"
        self.directory = (out or temporary).resolve()
        s = settings
        self._match = matcher(s.match)
        self._expect = None if s.expect is None else function("--expect", s.expect)
        self._final = None if s.final is None else function("--final", s.final)
        self._feed = None if s.feed is None else function("--feed", s.feed)
        self._begun_s = time.monotonic()
        self._aborted_ids = frozenset[str]()
        self._timeouts = AS_IS if s.as_is else lowered_timeouts(s.seconds)
        self._sure = list[str]()  # the names of the faults that must be made
        self._restarted_s: list[float] = []  # all instances, after they stalled
        self._silent: list[str] = []  # of one instance, after it sent the brokers no requests
        self._prefix = f"r{secrets.token_hex(2)}"

    def go(self) -> ProveOutcome:
        """Run the application under faults, and return the outcome.

        Raises Failure with exit code 2 when there is no verdict, because the application did not
        work before the first fault, or a part of ours failed.
        """
        if self._out is None:
            guardian.keep("directory", self.directory)
        make_private_directory(self.directory)
        with ended_as_by_ctrl_c():
            try:
                outcome = self._closed_behind()
            except (Failure, KafkaError, OSError) as problem:
                raise Failure(str(problem), exit_code=2) from problem  # exit code 1 means violated
            except Exception as problem:  # a mistake of ours
                traceback.print_exc()
                told = f"{type(problem).__name__}: {problem}"
                raise Failure(told, exit_code=2) from problem
        outcome.seconds = time.monotonic() - self._begun_s
        return outcome

    def _closed_behind(self) -> ProveOutcome:
        stack = ExitStack()
        try:
            return self._go(stack)
        finally:
            with uninterrupted():
                try:
                    stack.close()
                finally:
                    if self._out is None:
                        shutil.rmtree(self.directory, ignore_errors=True)
                    guardian.forget("directory", self.directory)

    def _go(self, stack: ExitStack) -> ProveOutcome:
        s = self.settings
        cluster: Cluster | None = None
        if s.bootstrap:
            connection = to_other(s.bootstrap, s.command_config, self.directory)
        else:
            connection = to_ours(cluster := self._cluster(stack))
        require_tls(s.faults, connection)
        config = connection.config
        admin = stack.enter_context(blocking_admin(config, say=self._say))
        begin = self._topics(admin, cluster)
        observed, refusals = Observed(s.inputs, s.outputs), Refusals()
        diagnosis = DiagnosisListener(
            is_aggregate=s.final is not None, inputs=s.inputs, outputs=s.outputs
        )
        lowest_ms = 0 if s.as_is else round(1000 * self._timeouts.transaction_s)
        proxy = ProtocolProxy(
            config,
            [observed, diagnosis, refusals],
            transaction_timeout_ms=lowest_ms,
            tls=connection.tls,
        )
        stack.enter_context(proxy)
        application = Application(
            s.command,
            self.directory / "application",
            proxy.address_for,
            s.inputs,
            s.outputs,
            s.environment,
            is_kept=self._out is not None,
            client_files=connection.client_files,
        )
        stack.callback(application.close)
        reader = self._outputs(config, begin)
        stack.callback(reader.close)
        feeder = Feeder(config, s.inputs, s.rate, self._feed, self._prefix, s.aborts)
        stack.callback(feeder.close)
        reader.start()
        feeder.start()
        for _ in range(s.instances):
            application.add()
        self._wait_until_at_work(application, reader, feeder, observed)
        self._timeouts = with_broker_sessions(self._timeouts, admin, observed, self._say)
        first_fault_s = time.monotonic()
        striker = Striker(
            proxy,
            application,
            observed,
            cluster,
            seed=s.seed,
            inputs=frozenset(s.inputs),
            outputs=frozenset(s.outputs),
            timeouts=self._timeouts,
            instances_max=s.instances + (0 if s.alone else INSTANCES_MORE_MAX),
            refusals=refusals,
            user=connection.user,
        )
        traits = partial(
            self._traits,
            application,
            observed,
            has_brokers=cluster is not None,
            has_tls=connection.tls is not None,
            has_user=connection.user is not None,
        )
        struck = list(self._strike(striker, application, observed, feeder, traits))
        feeder.stop()
        self._say("the faults have ended, and the repair begins")
        striker.heal()
        self._say("the repair is done, and prove waits until outputs and offsets no longer change")
        self._aborted_ids = feeder.aborted_ids
        end_s = first_fault_s + s.seconds
        drained = self._drain(admin, application, reader, observed, config, begin, end_s)
        application.stop()
        judgement, inputs, outputs = drained.judged(is_last=True)
        diagnosis.look_back(
            doubled=len(judgement.doubled) + len(judgement.stray),
            lost=len(judgement.lost),
            lost_inputs=places_of(record for which, record in inputs if which in judgement.lost),
            wrong_finals=len(judgement.wrong),
            is_sink=s.sink is not None,
            is_open=bool(judgement.pending or judgement.aborted),
        )
        outcome = ProveOutcome(
            settings=s,
            verdict=verdict_of(judgement, sum(x.met > 0 for x in struck if x.is_made),
                               stands_still=drained.why, restless=drained.restless,
                               is_faultless=not s.seconds),
            judgement=judgement, struck=struck, sure=self._sure, facts=observed.facts,
            exits=application.exits,
            lowered=list(observed.lowered), groups=list(observed.groups),
            transactional_ids=list(observed.transactional_ids), apis=sorted(observed.apis),
            begun_s=self._begun_s, first_fault_s=first_fault_s,
            notes=[*self._notes(), *drained.notes], rest=drained.unrest is None,
            directory="" if self._out is None else str(self._out), findings=diagnosis.findings,
        )  # fmt: skip
        outcome.story_of, outcome.story = shortest(
            judgement,
            inputs,
            outputs,
            self._match,
            [*observed.facts, *feeder.aborted],
            struck,
            application.exits,
        )
        return outcome

    def _notes(self) -> list[str]:
        notes: list[str] = []
        for name, times in Counter(self._silent).items():
            notes.append(
                f"{name} sent no request to the brokers for {self._timeouts.silent_s:.0f} s, so "
                f"prove restarted it ({_times(times)}): in production a probe would have to"
            )
        if self._restarted_s:
            notes.append(
                f"the application made no progress for {self._timeouts.still_s:.0f} s after a "
                f"fault, so prove restarted it ({_times(len(self._restarted_s))}): in production "
                "a probe would have to"
            )
        return notes

    # --- what is needed

    def _cluster(self, stack: ExitStack) -> Cluster:
        config = {} if self.settings.as_is else dict(SHORT_SESSIONS)
        if self.settings.secure:
            config |= CONFIG
        cluster = Cluster(NODES, config=config, secure=self.settings.secure)
        stack.enter_context(cluster)
        self._say(f"a cluster of {NODES} nodes at {cluster.bootstrap}")
        return cluster

    def _topics(self, admin: BlockingAdmin, cluster: Cluster | None) -> dict[TopicPartition, int]:
        """Create the missing topics.

        Return the end offset of each partition, where this run begins.
        """
        s, wanted = self.settings, [*self.settings.inputs, *self.settings.outputs]
        there = {p.topic for p in admin.describe_topics(None)}
        for topic in wanted:
            if topic not in there:
                replicas = NODES if cluster else min(3, len(admin.describe_cluster().brokers))
                admin.create_topic(topic, partitions=s.partitions, replication_factor=replicas)
        if not wait_for(lambda: self._all_there(admin, wanted), 30.0):
            raise Failure(f"The topics {', '.join(wanted)} were not made within 30 s.")
        keys = [(p.topic, p.partition) for p in admin.describe_topics(wanted)]
        return dict(admin.list_offsets(dict.fromkeys(keys, LATEST)))

    @staticmethod
    def _all_there(admin: BlockingAdmin, wanted: list[str]) -> bool:
        found = [p for p in admin.describe_topics(None) if p.topic in wanted]
        return {p.topic for p in found} == set(wanted) and all(p.leader >= 0 for p in found)

    def _outputs(self, config: Mapping[str, Any], begin: Mapping[TopicPartition, int]) -> Outputs:
        if self.settings.sink is not None:
            return DatabaseOutputs(self.settings.sink)
        return OutputReader(
            config, {p: at for p, at in begin.items() if p[0] in self.settings.outputs}
        )

    def _wait_until_at_work(
        self,
        application: Application,
        reader: Outputs,
        feeder: Feeder,
        observed: Observed,
    ) -> None:
        """Wait until the application processes inputs, because faults before that prove nothing."""
        begun_s = time.monotonic()

        def is_at_work() -> bool:
            reader.check()
            feeder.check()
            if application.exits:
                _, name, code = application.exits[0]
                raise Failure(
                    f"The application did not work before the first fault: {name} ended with code "
                    f"{code}.{self._defaults()}{application.told(name)}",
                    exit_code=2,
                )
            return len(reader.records) >= ENOUGH_OUTPUTS

        if wait_for(is_at_work, self.settings.start_timeout_s):
            start_s = time.monotonic() - begun_s
            self._timeouts = replace(self._timeouts, start_s=start_s)
            # Clients with auto-commit commit every 5 s; applications with offsets elsewhere,
            # never.
            wait_for(lambda: observed.apis & COMMITS and is_at_work(), FIRST_COMMIT_TIMEOUT_S)
            self._say(f"at work: {len(reader.records)} outputs of {feeder.fed} inputs")
            return
        name = application.names[0]
        apis = ", ".join(sorted(observed.apis)) or "nothing"
        raise Failure(
            f"The application did not work before the first fault: {len(reader.records)} outputs "
            f"of {feeder.fed} inputs within {self.settings.start_timeout_s:.0f} s. Its requests "
            f"to the brokers: {apis}.{self._defaults()}{application.told(name)}",
            exit_code=2,
        )

    def _defaults(self) -> str:
        """Return a sentence about the options --in and --out that were not given, or an empty text.

        The application may read and write other topics than the defaults.
        """
        s = self.settings
        named = [
            f"{option} was not given: {variable} is {given[0]}"
            for option, variable, given, default in (
                ("--in", "ONCELOG_IN", s.inputs, DEFAULT_IN),
                ("--out", "ONCELOG_OUT", s.outputs, DEFAULT_OUT),
            )
            if given == default
        ]
        return f" {'; '.join(named)}." if named else ""

    def _traits(self, application: Application, observed: Observed, **cluster: bool) -> Traits:
        instances = len(application.instances)
        return Traits(observed.apis, instances, is_alone=self.settings.alone, **cluster)

    # --- the course

    def _strike(
        self,
        striker: Striker,
        application: Application,
        observed: Observed,
        feeder: Feeder,
        traits: Callable[[], Traits],
    ) -> Iterator[Struck]:
        s, left = self.settings, _Time(self.settings.seconds)
        has_tls, made = traits().has_tls, 0
        groups = sure_ones(s.seed, s.seconds, traits(), s.instances) if s.seconds else []
        chosen = sum(groups, list[AimedFault]()) if s.faults is None else named(s.faults)
        self._sure = [fault.name for fault in chosen]
        planned: Iterator[AimedFault] = plan(s.seed, groups, left.is_over, is_secured=has_tls)
        for fault in planned if s.faults is None else chosen:
            is_sure, is_named = fault.sure_tries > 0, s.faults is not None
            is_fed = feeder.fed >= INPUTS_MAX  # a fault from now on would meet no work
            if left.is_over(at_last=True) or made >= FAULTS_MAX or is_fed:
                return
            if not is_sure and left.is_over():
                continue  # it belongs to the fault before; the sure ones are still to come
            feeder.check()
            if fault.act is not Act.SLOW:
                left.lasts(striker.late.wait_until_over)
            fits = left.has_room(self._timeouts.least_s(fault), at_last=is_sure)
            if is_named or (fits and is_possible(fault, traits(), s.instances)):
                struck, made = left.lasts(partial(striker.strike, fault), is_sure), made + 1
                self._say(f"{struck.at_s - self._begun_s:6.1f} s  {struck.what}")
                for name in striker.restarted[len(self._silent) :]:
                    self._say(f"{name} sent no more requests to the brokers, and was restarted")
                    self._silent.append(name)
                yield struck
                if not struck.is_made and fault.sure_tries > 1:
                    groups.append([replace(fault, sure_tries=fault.sure_tries - 1)])
                of_faults_s = striker.late.until_s, striker.woken_s
                worked_s = max(observed.worked_at_s, *of_faults_s, *self._restarted_s)
                if time.monotonic() - worked_s > self._timeouts.still_s:
                    self._say("there was no progress, so all instances are restarted")
                    application.restart_all()
                    self._restarted_s.append(time.monotonic())

    def _drain(
        self,
        admin: BlockingAdmin,
        application: Application,
        reader: Outputs,
        observed: Observed,
        config: Mapping[str, Any],
        begin: Mapping[TopicPartition, int],
        faults_end_s: float,
    ) -> Drain:
        s = self.settings
        of_inputs = {p: at for p, at in begin.items() if p[0] in s.inputs}
        ends = dict(admin.list_offsets(dict.fromkeys(of_inputs, LATEST)))
        read = read_all(config, of_inputs, ends)
        inputs = [(i, r) for r in read if (i := r.header(ID_HEADER) or "").startswith(self._prefix)]
        if not self._aborted_ids.isdisjoint(which for which, _ in inputs):
            raise Failure("The cluster shows aborted inputs to a read_committed consumer.")
        drain = Drain(
            admin,
            application,
            reader,
            observed,
            inputs,
            ends,
            [p for p in begin if p[0] in s.outputs],
            self._judge,
            self._pace(faults_end_s),
            self._say,
        )
        drain.wait()
        return drain

    def _pace(self, faults_end_s: float) -> Pace:
        """Return how long the wait after the faults may take.

        An instance that was killed by the last fault must have time to start again and to process
        inputs. The wait keeps the run within its usual time, except with a longer --drain, or for
        an application that needs long to start.
        """
        silence_s, start_s = self._timeouts.silence_s, self._timeouts.start_s
        wanted_s = max(self.settings.drain_timeout_s, 3 * silence_s) + self._timeouts.longer_s
        ends_within_s = RUN_ENDS_WITHIN_S + self._timeouts.longer_s
        left_s = faults_end_s + ends_within_s - STOP_S - time.monotonic()
        more_s = max(0.0, self.settings.drain_timeout_s - DEFAULT_DRAIN_S)
        least_s = max(DRAIN_MIN_S, 3 * start_s)
        limit_s = max(left_s + more_s, least_s)
        return Pace(min(wanted_s, limit_s), silence_s, max(REST_S, 1.5 * start_s))

    def _judge(
        self,
        inputs: list[tuple[str, LogRecord]],
        outputs: list[LogRecord],
        is_passed: Callable[[LogRecord], bool],
    ) -> Judgement:
        if self._final is not None:
            return judge_finals(inputs, outputs, self._final, is_passed)
        return judge_ids(
            inputs,
            outputs,
            self._match,
            fanout=self.settings.fanout,
            expect=self._expect,
            is_passed=is_passed,
            aborted=self._aborted_ids,
        )


class _Time:
    """The time for faults of a run, which sure faults extend up to a limit."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds
        self._latest_s = self._end_s + SURE_EXTRA_S

    def is_over(self, at_last: bool = False) -> bool:
        return time.monotonic() > (self._latest_s if at_last else self._end_s)

    def has_room(self, seconds: float, at_last: bool = False) -> bool:
        end_s = self._latest_s + SLOW_S[1] if at_last else self._end_s
        return time.monotonic() + seconds < end_s

    def lasts(self, act: Callable[[], T], is_extra: bool = True) -> T:
        """Call `act` and return its result.

        With `is_extra` its duration extends the time for faults.
        """
        begun_s = time.monotonic()
        done = act()
        if is_extra:
            self._end_s = min(self._latest_s, self._end_s + time.monotonic() - begun_s)
        return done


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"

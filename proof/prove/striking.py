"""Injects faults, most of them while the proxy holds a request of the application.

A fault for which no request matched is reported as missed, and does not count.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from ...deploy.cluster.ends.flag import Flag
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.faults.protocol_proxy.events import Answer, Request
from ...deploy.faults.protocol_proxy.proxy import ProtocolProxy
from ...deploy.faults.protocol_proxy.rules import (
    HOLD_DEADLINE_MAX_S,
    Action,
    AnswerError,
    Disconnect,
    Ending,
    Hold,
    HoldPoint,
    LoseAnswer,
    Match,
    Rule,
)
from ...deploy.faults.secured_user import SecuredUser
from ...wire.error_codes import ErrorCode
from .application import Application
from .facts import Struck
from .observed import Observed, wait_for
from .plan import (
    AWAKE_S,
    FETCH,
    INIT,
    PAUSES,
    PRODUCE,
    REFUSALS,
    SETTLE_S,
    Act,
    AimedFault,
    Point,
    Timeouts,
)
from .strikes.brokers import BrokerStrikes
from .strikes.lateness import LateStrikes, later
from .strikes.refusals import Refusals
from .strikes.security import SecurityStrikes

POINTS = {
    Point.BEFORE: HoldPoint.BEFORE_REQUEST,
    Point.DONE: HoldPoint.BEFORE_ANSWER,
    Point.AFTER: HoldPoint.AFTER_ANSWER,
}
OPEN_WORK_TIMEOUT_S = 3.0
HOLD_MARGIN_S = 10.0
LOOK_EACH_S = 0.25  # interval of the check for silent instances during a wait
WORK_S = 0.1  # within which new inputs are at work
ANSWERED = (Act.SLOW, Act.ERROR)  # an unanswered request cannot be refused, nor answered late
BACKLOG_S = 2.5  # far below its session
JUST_NOW_S, STALL_S = 2.0, 1.0


class Striker:
    """Injects the faults of a run. `cluster` is None for a cluster that is not ours."""

    def __init__(
        self,
        proxy: ProtocolProxy,
        application: Application,
        observed: Observed,
        cluster: Cluster | None,
        *,
        seed: int,
        inputs: frozenset[str],
        outputs: frozenset[str],
        timeouts: Timeouts,
        instances_max: int,
        refusals: Refusals | None = None,
        user: SecuredUser | None = None,
    ) -> None:
        self._proxy, self._application, self._observed = proxy, application, observed
        self._cluster, self._timeouts = cluster, timeouts
        self._inputs, self._outputs = inputs, outputs
        self._instances_max = instances_max
        self._chance = random.Random(f"oncelog prove instances {seed}")
        self._killed_s = float("-inf")  # when an instance was, the last time
        self._zombie: str | None = None  # a woken instance with another one in its place
        self.restarted: list[str] = []  # silent ones
        # when a system without a second instance was woken, or a refusal was over, the last time
        self.woken_s = float("-inf")
        self._brokers = BrokerStrikes(cluster)
        self.late = LateStrikes(
            proxy,
            observed,
            cluster,
            lambda: application.instances,
            self._wait,
            aim_s=timeouts.aim_s,
            seed=seed,
        )
        self._refusals = refusals or Refusals()
        security = SecurityStrikes(
            proxy,
            cluster,
            user,
            self._refusals,
            hold=self._held,
            one=self._one,
            wait=self._wait,
            seed=seed,
        )
        self._kinds: dict[Act, Callable[[AimedFault], Struck]] = {
            Act.KILL: lambda fault: self._held(fault, self._kill),
            Act.PAUSE: lambda fault: self._held(fault, self._pause),
            Act.PAUSE_AT_WORK: self._pause_at_work,
            Act.PAUSE_LONG: lambda fault: self._held(fault, self._pause),
            Act.BROKER: lambda fault: self._held(fault, self._brokers.kill),
            Act.BROKER_BEHIND: self._behind,
            Act.LOSE_ANSWER: lambda fault: self._ruled(fault, LoseAnswer(), "the answer is lost"),
            Act.ERROR: self._refuse,
            Act.SLOW: lambda fault: (
                self.late.slow(fault, self._match(fault)) or self._missed(fault)
            ),
            Act.STALL: lambda fault: self._held(fault, self.late.stall),
            Act.HOLD: lambda fault: self._held(fault, self.late.hold),
            Act.KILL_AT_WORK: self._kill_at_work,
            Act.STOP: self._stop,
            Act.ADD: self._add,
            Act.REMOVE: self._remove,
            Act.CUT: self._cut,
            Act.CERTIFICATE: security.expire,
            Act.PASSWORD: security.change_password,
            Act.REAUTHENTICATION: security.refuse_reauthentication,
            Act.ACL: security.strike_in_a_transaction,
        }

    def strike(self, fault: AimedFault) -> Struck:
        """Inject a fault. Return when all instances run again.

        A slow request or a paused broker lasts longer (`late`), and a killed broker is started
        before the next fault.
        """
        self._brokers.mend()
        if fault.act is not Act.SLOW:
            self.late.wait_until_over()
        self._restart_silent()
        struck = self._kinds[fault.act](fault)
        self._application.check()
        if struck.is_made and fault.act in PAUSES:
            since_s = self._application.awake_since_s(struck.instance)
            time.sleep(AWAKE_S)
            has_finished = self._observed.has_finished
            wait_for(lambda: has_finished(struck.instance, since_s), self._timeouts.session_s)
        elif struck.is_made and fault.act is Act.ERROR:  # the next fault would undo its effect
            through = self._observed.has_gone_through
            wait_for(lambda: through(struck.instance, struck.at_s), self._timeouts.session_s)
        elif struck.is_made and (fault.needs_tls or fault.needs_user):
            names = {struck.instance} | self._refusals.refused_since(struck.at_s)
            if stuck := self._bring_back(names & set(self._application.instances), struck.at_s):
                words = f"{', '.join(stuck)} stayed in a transaction, and was restarted by prove"
                struck = replace(struck, what=f"{struck.what}; {words}")
            self.woken_s = time.monotonic()  # a group may wait for sessions of ended instances
        self._application.ensure_running()
        if self._zombie is not None:  # leaving both instances running would be a misconfiguration
            self._application.end(self._zombie)
            self._zombie = None
        return later(struck, time.monotonic())

    def heal(self) -> None:
        self.late.wait_until_over()
        self._brokers.mend()
        if self._cluster is not None:
            self._cluster.heal()
            self._cluster.wait_for_isr()
        self._application.ensure_running()

    # --- who is there

    def _restart_silent(self, paused: str = "") -> None:
        """Restart instances that send no requests, as a liveness probe would.

        A client whose consumer has crashed may leave its process idle. A fault needs a target that
        works, and a pause also needs another instance that continues the work.
        """
        for name in self._application.instances:
            silent_since_s = self._observed.silent_since_s(name)
            if name == paused or silent_since_s is None:
                continue
            since_s = max(silent_since_s, self._application.awake_since_s(name))
            if time.monotonic() - since_s > self._timeouts.silent_s:
                self.restarted.append(name)
                self._application.restart(name)

    def _bring_back(self, names: set[str], at_s: float) -> list[str]:
        """Wait until refused instances have committed. Restart those that stay in a transaction.

        A client may never connect to its coordinator again, while its consumer sends heartbeats. An
        instance that has ended since the refusal is already a new process. Returns the names of
        restarted instances.
        """
        healed_s, through = time.monotonic(), self._observed.has_gone_through
        back_s = self._timeouts.session_s + self._timeouts.start_s  # an instance may have ended
        self._wait(lambda: all(through(name, healed_s) for name in names), back_s)
        stuck = [
            name
            for name in sorted(names)
            if not through(name, healed_s)
            and self._observed.is_in_transaction(name)
            and self._application.awake_since_s(name) < at_s
        ]
        for name in stuck:
            self._application.restart(name)
        return stuck

    def _wait(self, holds: Callable[[], bool], timeout_s: float, paused: str = "") -> bool:
        """Wait for a condition, and restart silent instances. Return False at the timeout."""
        end_s = time.monotonic() + timeout_s
        while not wait_for(holds, min(LOOK_EACH_S, max(0.0, end_s - time.monotonic()))):
            if time.monotonic() > end_s:
                return False
            self._restart_silent(paused)
        return True

    # --- at a request

    def _held(
        self, fault: AimedFault, act: Callable[[AimedFault, Request], tuple[Ending, str]]
    ) -> Struck:
        """Hold the next request that the fault is aimed at, and call `act` while it is held.

        Return the fault with its effect, or as missed if no such request came in time.
        """
        if fault.needs_rebalance:
            self._provoke_rebalance()
        found: list[Struck] = []
        begun, over, first = Flag(), Flag(), threading.Lock()
        is_of_inputs = fault.apis == FETCH

        def held(request: Request, answer: Answer | None) -> Ending:
            if is_of_inputs and (answer is None or not self._observed.brings_inputs(answer)):
                return None  # a poll without records
            if not first.acquire(blocking=False):
                return None
            begun.set()
            self._proxy.remove(rule)
            at_s, ending = time.monotonic(), None
            whom = "" if fault.needs_brokers else request.instance  # the end of a broker meets all
            try:
                ending, what = act(fault, request)
                found.append(Struck(at_s, whom, fault.name, what, self._met(request)))
            except Failure as problem:
                found.append(Struck(at_s, whom, fault.name, str(problem), is_made=False))
            finally:
                over.set()
            return ending

        assert fault.point is not None
        least_s = self._timeouts.pause_max_s + self._timeouts.transaction_s + HOLD_MARGIN_S
        deadline_s = min(least_s, HOLD_DEADLINE_MAX_S)
        times = None if is_of_inputs else 1
        rule = Rule(self._match(fault), Hold(POINTS[fault.point], held, deadline_s), times=times)
        self._proxy.add(rule)
        try:
            # `first` decides; a request that arrives later is forwarded.
            if not self._wait(begun.is_set, self._timeouts.aim_s) and first.acquire(blocking=False):
                return self._missed(fault)
            over.wait(deadline_s)
        finally:
            self._proxy.remove(rule)
        return found[0] if found else self._missed(fault)

    def _met(self, request: Request) -> int:
        return max(1, self._observed.open_work(request.instance))

    def _provoke_rebalance(self) -> None:
        """Add one instance, remove one if there are many, or restart the only one."""
        names = self._application.instances
        if len(names) < self._instances_max:
            self._application.add()
        elif len(names) == 1:
            self._application.restart(names[0])
        else:
            self._application.remove(self._chance.choice(sorted(names)))

    def _match(self, fault: AimedFault) -> Match:
        inputs, outputs = self._inputs, self._outputs

        def concerns(request: Request) -> bool:
            if request.api == "SaslHandshake":
                return self._refusals.is_reauthentication(
                    request
                ) and self._observed.is_in_transaction(request.instance)
            if fault.act in (Act.HOLD, Act.ACL) and not request.body.transactional_id:
                return False
            if request.api == "Produce":
                if fault.act in ANSWERED and request.body.acks == 0:
                    return False
                return bool(request.subjects.topics & outputs)
            if request.api in ("OffsetCommit", "TxnOffsetCommit"):
                return bool(request.subjects.topics & inputs)
            if request.api == "ConsumerGroupHeartbeat":
                return request.body.topic_partitions is not None
            return request.api != "EndTxn" or request.body.committed

        return Match(apis=fault.apis, where=concerns)

    def _missed(self, fault: AimedFault) -> Struck:
        at = ", ".join(sorted(fault.apis))
        what = f"{fault.name}: no {at} came within {self._timeouts.aim_s:.0f} s"
        return Struck(time.monotonic(), "", fault.name, what, is_made=False)

    def _refuse(self, fault: AimedFault) -> Struck:
        name = fault.refusal or "GROUP_AUTHORIZATION_FAILED"
        if fault.apis == PRODUCE and not fault.refusal:
            name = self._chance.choice(REFUSALS)
        error = ErrorCode[name]
        return self._ruled(fault, AnswerError(error), f"refused with {error.name}")

    def _ruled(self, fault: AimedFault, action: Action, words: str) -> Struck:
        seen: list[Request] = []
        match = self._match(fault)

        def remembers(request: Request) -> bool:
            if match.where is not None and match.where(request):
                seen[:] = [request]
                return True
            return False

        rule = Rule(replace(match, where=remembers), action)
        self._proxy.add(rule)
        try:
            if fault.needs_rebalance:
                self._provoke_rebalance()
            if not self._wait(lambda: self._proxy.made(rule) > 0, self._timeouts.aim_s):
                return self._missed(fault)
        finally:
            self._proxy.remove(rule)
        request = seen[0]
        what = f"{request.api} of {request.instance}: {words}"
        return Struck(request.at_s, request.instance, fault.name, what, self._met(request))

    # --- what is done while it is held

    def _kill(self, fault: AimedFault, request: Request) -> tuple[Ending, str]:
        name = request.instance
        if fault.point is Point.AFTER:
            time.sleep(self._chance.uniform(0, WORK_S))
        self._application.kill(name)
        self._killed_s = time.monotonic()
        return Disconnect(), f"kill -9 of {name} {fault.where} {request.api}"

    def _pause(self, fault: AimedFault, request: Request) -> tuple[Ending, str]:
        least_s = 0.0
        if fault.act is Act.PAUSE_LONG:
            least_s = self._timeouts.transaction_s + SETTLE_S
        elif fault.apis == INIT:  # it has read nothing yet that would show the progress of others
            least_s = self._timeouts.session_s + SETTLE_S
        where = f"just {fault.where} {request.api}"
        return None, self._paused(request.instance, where, least_s)

    def _paused(self, name: str, where: str, least_s: float = 0.0) -> str:
        """Pause an instance until other instances have continued its partitions, and resume it.

        A single process is paused for its session timeout, because no other instance can continue
        its partitions. Return a sentence about the pause.
        """
        self._application.pause(name)
        at_s = time.monotonic()
        had = self._observed.had(name, at_s)
        has_begun = self._observed.is_in_transaction(name)
        is_single = self._instances_max == 1
        if is_single:
            least_s = max(least_s, self._timeouts.session_s + SETTLE_S)
        elif len(self._application.instances) == 1:  # its supervisor would think that it is gone
            self._application.add(self._application.known_as(name))
            self._application.replaced(name)
            self._zombie = name
        self._wait(lambda: False, least_s, name)
        has_gone_on = self._observed.has_gone_on
        most_s = self._timeouts.pause_max_s
        gone_on = not is_single and self._wait(lambda: has_gone_on(name, at_s, had), most_s, name)
        if gone_on:
            time.sleep(0.3)  # a few records more, which it may then process again
        self._application.resume(name)
        paused_s = time.monotonic() - at_s
        if is_single:
            self.woken_s = time.monotonic()
        outcome = "its group continued without it" if gone_on else "no member took its place"
        if has_begun and paused_s > self._timeouts.transaction_s:
            outcome += "; its transaction has timed out"
        return f"{name} was paused for {paused_s:.1f} s, {where}, and {outcome}"

    def _behind(self, fault: AimedFault) -> Struck:
        """Kill a leader after it has answered, while its followers get the record late."""
        with self._brokers.followers_behind():
            return self._held(fault, self._brokers.kill)

    # --- at no request in particular: when work is open

    def _one(self) -> tuple[str, int]:
        """Choose an instance, and wait shortly until it has work in flight.

        Returns its name and the amount of its work in flight.
        """
        name = self._chance.choice(sorted(self._application.instances))
        wait_for(lambda: self._observed.open_work(name) > 1, OPEN_WORK_TIMEOUT_S, 0.001)
        return name, self._observed.open_work(name)

    def _kill_at_work(self, fault: AimedFault) -> Struck:
        """Kill an instance between two commits, while input has piled up.

        An application that mostly waits for input would be killed during a wait. Therefore input
        piles up first, because of a kill shortly before, or by a pause of one instance. The kill
        follows a commit after a random time, which is shorter than the time since the commit
        before.
        """
        names, since_s = sorted(self._application.instances), self._killed_s
        if time.monotonic() - since_s > JUST_NOW_S:
            names = [self._chance.choice(names)]
            since_s = time.monotonic()
            self._application.pause(names[0])
            time.sleep(BACKLOG_S)
            self._application.resume(names[0])
        found: list[tuple[str, float, float]] = []

        def has_begun() -> bool:
            for name in names:
                commits = after_a_stall([since_s, *self._observed.committed_at_s(name, since_s)])
                if len(commits) > 2:  # the first may cover inputs that it had in hand
                    found[:] = [(name, commits[-1], commits[-1] - commits[-2])]
            return bool(found)

        if not wait_for(has_begun, self._timeouts.aim_s, 0.001):
            return self._missed(fault)
        name, committed_s, gap_s = found[0]
        time.sleep(self._chance.uniform(0, gap_s))
        at_s = time.monotonic()
        met = self._observed.open_work(name)
        self._application.kill(name)
        self._killed_s = at_s
        what = f"kill -9 of {name} at work, {(at_s - committed_s) * 1000:.0f} ms after its commit"
        return Struck(at_s, name, fault.name, what, met)

    def _pause_at_work(self, fault: AimedFault) -> Struck:
        """Pause an instance shortly after it got inputs, without holding the answer."""

        def freeze(_: AimedFault, request: Request) -> tuple[Ending, str]:
            time.sleep(self._chance.uniform(0, WORK_S))
            self._application.pause(request.instance)
            return None, ""

        struck = self._held(fault, freeze)
        if not struck.is_made:
            return struck
        return replace(struck, what=self._paused(struck.instance, "when inputs had come"))

    def _stop(self, fault: AimedFault) -> Struck:
        name, met = self._one()
        at_s = time.monotonic()
        how = self._application.end(name)
        return Struck(at_s, name, fault.name, f"SIGTERM to {name}, which {how}", met)

    def _remove(self, fault: AimedFault) -> Struck:
        name, met = self._one()
        at_s = time.monotonic()
        how = self._application.remove(name)
        return Struck(at_s, name, fault.name, f"{name} was taken away: it {how}", met)

    def _add(self, fault: AimedFault) -> Struck:
        at_s, met = time.monotonic(), self._observed.open_work()
        name = self._application.add()
        time.sleep(SETTLE_S)
        return Struck(at_s, name, fault.name, f"{name} was added", met)

    def _cut(self, fault: AimedFault) -> Struck:
        name, met = self._one()
        at_s = time.monotonic()
        count = self._proxy.disconnect(name)
        return Struck(at_s, name, fault.name, f"{count} connections of {name} were cut", met)


def after_a_stall(times_s: list[float]) -> list[float]:
    """Return the times after the last gap, during which input piled up, or [] without a gap."""
    gaps = [n for n, (a, b) in enumerate(pairwise(times_s), 1) if b - a > STALL_S]
    return times_s[gaps[-1] :] if gaps else []

"""Rules, which are actions on matching requests, as a core that counts and does no I/O.

    proxy.add(Rule(Match(apis={"EndTxn"}, instance="instance-1"), LoseAnswer()))
    proxy.add(Rule(Match(apis={"OffsetCommit"}), Hold(HoldPoint.BEFORE_REQUEST, kill)))

A request is given to the first rule that matches and has not acted as often as allowed. Later rules
neither act on the request nor count it.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from ....wire.error_codes import ErrorCode
from ....wire.messages.apis import APIS
from ....wire.primitives import MalformedFrame
from ...cluster.failure import Failure
from .error_answers import check_error_can_be_said
from .events import Answer, Request

SILENCE_MAX_S = 120.0
HOLD_DEADLINE_S = 30.0
HOLD_DEADLINE_MAX_S = 600.0
DELAY_MAX_S = 600.0


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The broker executes the request, its answer is lost, and the connection is closed.

    An answer with an error is forwarded, and the rule waits for the next request, since a refused
    request has not been executed. With `also_errors` such answers are lost, too.
    """

    also_errors: bool = False


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """The broker never sees the request.

    The connection gets no more answers, until the client closes it or `silence_max_s` are over.
    """

    silence_max_s: float = SILENCE_MAX_S


@dataclass(frozen=True, slots=True)
class AnswerError:
    """The broker never sees the request, and the client gets this error.

    The error is set for all requested partitions, keys or groups. `Rule` raises Failure for an API
    whose answers with an error cannot be created here.
    """

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Delay:
    """The request or its answer is delayed, and with it all later frames of its connection.

    A delayed request arrives even if its client has closed the connection meanwhile.
    """

    seconds: float
    of: Literal["request", "answer"] = "request"


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The connection is closed before the broker gets the request, or immediately after that.

    In the second case, it is unknown whether the broker executes the request.
    """

    when: Literal["before", "after"] = "before"


class HoldPoint(Enum):
    """A point at which a frame is held.

    BEFORE_REQUEST: the request was sent, and the broker has not seen it. BEFORE_ANSWER: the broker
    has executed the request, and the client does not know it. AFTER_ANSWER: the answer was sent to
    the client, and the client's next request on this connection is held.
    """

    BEFORE_REQUEST = "before its request"
    BEFORE_ANSWER = "before its answer"
    AFTER_ANSWER = "after its answer"


Ending = LoseAnswer | LoseRequest | Delay | Disconnect | None
# Called as act(request, answer). answer is None before there is one. It runs in its own thread and
# may block, or is awaited in the proxy's loop if it returns an awaitable. Its result applies to
# the released frame: None forwards it; Disconnect() closes the connection instead, which is right
# when the instance was killed, since its requests must not arrive after its death; LoseAnswer()
# and LoseRequest() are possible only before the frame that they lose.
Act = Callable[[Request, Answer | None], Ending | Awaitable[Ending]]


@dataclass(frozen=True, slots=True)
class Hold:
    """The frame, and all later frames of its connection, are held until `act` has returned.

    A frame is held for at most `deadline_s`, and then continues whatever `act` does. With
    BEFORE_ANSWER and AFTER_ANSWER, answers with an error are not held, unless `also_errors`.
    """

    at: HoldPoint
    act: Act = field(compare=False)
    deadline_s: float = HOLD_DEADLINE_S
    also_errors: bool = False


Action = LoseAnswer | LoseRequest | AnswerError | Delay | Disconnect | Hold


@dataclass(frozen=True, slots=True)
class Match:
    """The requests to which a rule applies. A field of None matches all requests.

    where: a function of the request, which may read its body. It is called in the proxy's loop.
    """

    apis: frozenset[str] | set[str] | None = None  # names of APIs: {"EndTxn"}
    client_id: str | None = None
    instance: str | None = None
    broker_id: int | None = None
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    where: Callable[[Request], bool] | None = field(default=None, compare=False)

    def fits(self, request: Request) -> bool:
        """Return whether a request matches. Undecodable ones match no subject and no `where`."""
        if self.apis is not None and request.api not in self.apis:
            return False
        if self.instance is not None and request.instance != self.instance:
            return False
        if self.client_id is not None and request.client_id != self.client_id:
            return False
        if self.broker_id is not None and request.connection.broker_id != self.broker_id:
            return False
        if self.topic is self.group is self.transactional_id is self.where is None:
            return True
        try:
            subjects = request.subjects
            return (
                (self.topic is None or self.topic in subjects.topics)
                and (self.group is None or self.group in subjects.groups)
                and (
                    self.transactional_id is None
                    or self.transactional_id in subjects.transactional_ids
                )
                and (self.where is None or self.where(request))
            )
        except MalformedFrame:
            return False


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """An action on the requests that match.

    nth: the first matching request on which the rule acts, counted from 1 when the rule was added.
    times: how often the rule acts, None for ever. Two rules are never equal, whatever their fields.
    """

    match: Match
    action: Action
    nth: int = 1
    times: int | None = 1

    def __post_init__(self) -> None:
        if unknown := (self.match.apis or set()) - API_KEYS.keys():
            raise Failure(
                f"There is no API {', '.join(sorted(unknown))}. Names are Kafka's: EndTxn, "
                f"OffsetCommit, Produce, ...",
                exit_code=2,
            )
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise Failure("A rule acts from the 1st time on, and once at least.", exit_code=2)
        _check_action(self.action, self.match.apis)


API_KEYS = {api.name: key for key, api in APIS.items()}


def _check_action(action: Action, apis: Iterable[str] | None) -> None:
    if isinstance(action, AnswerError):
        if not apis:
            raise Failure("An error needs the APIs that it is to be told to.", exit_code=2)
        for api in apis:
            check_error_can_be_said(API_KEYS[api], action.error)
    bounds = {
        Delay: ("A delay", "seconds", DELAY_MAX_S),
        LoseRequest: ("A silence", "silence_max_s", SILENCE_MAX_S * 5),
        Hold: ("A hold's deadline", "deadline_s", HOLD_DEADLINE_MAX_S),
    }
    if (bound := bounds.get(type(action))) is not None:
        name, attribute, most = bound
        if not 0 < getattr(action, attribute) <= most:
            raise Failure(f"{name} is more than 0 and at most {most:g} s.", exit_code=2)


@dataclass(slots=True)
class _Count:
    matched: int = 0
    taken: int = 0  # has acted, or is about to
    made: int = 0  # has acted


class RuleBook:
    """The current rules, and how often each has acted."""

    def __init__(self) -> None:
        self._counts: dict[Rule, _Count] = {}

    def add(self, rule: Rule) -> None:
        self._counts[rule] = _Count()

    def remove(self, rule: Rule) -> None:
        """Remove a rule.

        A removed rule acts no more, but frames that it holds or delays continue as planned.
        """
        self._counts.pop(rule, None)

    def decide(self, request: Request) -> Rule | None:
        """Return the first rule that acts on this request, and count the action, or return None."""
        for rule, count in tuple(self._counts.items()):  # a `where` may add one
            if (rule.times is not None and count.taken >= rule.times) or not rule.match.fits(
                request
            ):
                continue
            count.matched += 1
            if count.matched >= rule.nth:
                count.taken += 1
                return rule
        return None

    def give_back(self, rule: Rule) -> None:
        """Reduce the count of a rule's actions by one, after an action that did not happen.

        The answer to the request that `decide` had selected was an error, or never came.
        """
        if (count := self._counts.get(rule)) is not None:
            count.taken -= 1

    def has_acted(self, rule: Rule) -> None:
        if (count := self._counts.get(rule)) is not None:
            count.made += 1

    def made(self, rule: Rule) -> int:
        """Return how often the rule has acted, 0 for a removed rule."""
        count = self._counts.get(rule)
        return 0 if count is None else count.made

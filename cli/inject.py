"""`oncelog inject` injects faults of the protocol between a client and any Kafka."""

import re
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import LoopLines, say, tell
from .common import DEFAULT_CLUSTER, ClusterOptions
from .security.proxied import CaFile, proxied

if TYPE_CHECKING:
    from ..deploy.faults.protocol_proxy.events import Event
    from ..deploy.faults.protocol_proxy.proxy import ProtocolProxy
    from ..deploy.faults.protocol_proxy.rules import Action, Rule

DID_NOT_HIT = 3
FOR_EVER_S = 7 * 24 * 3600.0
GONE_S = 2.0  # without a connection
TURN_S = 0.5  # between two looks at Ctrl-C
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0}


def register(app: App) -> None:
    """Add the command of this file to `app`."""
    app.command(inject)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions:
    """The fault to inject; exactly one of these options must be given."""

    lose_answer: Annotated[
        bool,
        Parameter(
            help="Execute the request, drop its answer and close the connection.", negative=()
        ),
    ] = False
    lose_request: Annotated[
        bool,
        Parameter(
            help="Do not execute the request, and send no more answers on its connection.",
            negative=(),
        ),
    ] = False
    error: Annotated[
        str | None,
        Parameter(
            help="Do not execute the request, and answer with this error, e.g. NOT_COORDINATOR."
        ),
    ] = None
    delay: Annotated[
        str | None, Parameter(help="Delay the request by this time, e.g. 3s or 500ms.")
    ] = None
    disconnect: Annotated[
        Literal["before", "after"] | None,
        Parameter(
            help="Close the connection before or immediately after the broker gets the request."
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOptions:
    """The requests that the fault affects."""

    api: Annotated[
        list[str],
        Parameter(
            help="Kafka's name of a request, e.g. EndTxn. The option may be repeated.", negative=()
        ),
    ]
    client_id: Annotated[
        str | None, Parameter(help="Match only requests of clients with this client id.")
    ] = None
    topic: Annotated[str | None, Parameter(help="Match only requests about this topic.")] = None
    group: Annotated[str | None, Parameter(help="Match only requests about this group.")] = None
    transactional_id: Annotated[
        str | None, Parameter(help="Match only requests with this transactional id.")
    ] = None
    nth: Annotated[int, Parameter(help="Begin with the n-th matching request.")] = 1
    times: Annotated[int, Parameter(help="The number of faults. 0 means no limit.")] = 1


def inject(
    *,
    match: MatchOptions,
    fault: FaultOptions = FaultOptions(),
    exit_when_done: Annotated[
        bool,
        Parameter(
            help="End after all --times faults, when the clients have disconnected.",
            negative=(),
        ),
    ] = False,
    seconds: Annotated[
        float | None,
        Parameter(help="End after this time in seconds. The default is to end at Ctrl-C."),
    ] = None,
    ca_file: CaFile = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Open a proxy between clients and a cluster, and inject a fault into matching requests.

    The command prints the address that clients use instead of the cluster's. It then prints a line
    for each fault. It works with any client and any login. The exit code is 3 if no request
    matched. With --exit-when-done, it is 3 if too few requests matched.
    """
    from ..deploy.faults.protocol_proxy.proxy import ProtocolProxy

    rule = _rule(match, fault)
    if exit_when_done and rule.times is None:
        raise Failure("--times 0 means for ever, so the command would never end.", exit_code=2)
    if seconds is not None and not seconds > 0:
        raise Failure("--seconds has to be more than 0.", exit_code=2)
    config, tls, lines = proxied(cluster, ca_file)
    printed = LoopLines()
    with ProtocolProxy(config, [partial(_print_fault, printed)], tls=tls) as proxy:
        proxy.add(rule)
        tell(f"bootstrap.servers={proxy.address_for()}", *lines)
        _wait(proxy, rule, seconds, exit_when_done)
        made = proxy.made(rule)
    printed.report_missing()
    wanted = (rule.times or 1) if exit_when_done else 1
    if made >= wanted:
        return 0
    say(_not_done(made, wanted, match))
    return DID_NOT_HIT


def _not_done(made: int, wanted: int, match: MatchOptions) -> str:
    """Return the message that `made` of `wanted` faults were injected.

    It describes the requests that the proxy waited for in vain.
    """
    given = {
        "--client-id": match.client_id,
        "--topic": match.topic,
        "--group": match.group,
        "--transactional-id": match.transactional_id,
        "--nth": str(match.nth) if match.nth > 1 else None,
    }
    options = " ".join(f"{option} {value}" for option, value in given.items() if value is not None)
    which = f"{' or '.join(match.api)} request" + (f" with {options}" if options else "")
    if not made:
        return f"The fault was not made: no {which} came through the proxy."
    return f"The fault was made {made} of {wanted} times: no further {which} came."


def _rule(match: MatchOptions, fault: FaultOptions) -> "Rule":
    """Return the proxy's rule with the matched requests and the fault that the options name.

    Raises Failure for contradicting options.
    """
    from ..deploy.faults.protocol_proxy.rules import Match, Rule

    which = Match(
        apis=frozenset(match.api),
        client_id=match.client_id,
        topic=match.topic,
        group=match.group,
        transactional_id=match.transactional_id,
    )
    if match.times < 0:
        raise Failure("--times is 1 or more, or 0 for ever.", exit_code=2)
    return Rule(which, _action(fault), nth=match.nth, times=match.times or None)


def _action(fault: FaultOptions) -> "Action":
    from ..deploy.faults.protocol_proxy.rules import (
        AnswerError,
        Delay,
        Disconnect,
        LoseAnswer,
        LoseRequest,
    )

    actions: list[Action] = []
    if fault.lose_answer:
        actions.append(LoseAnswer())
    if fault.lose_request:
        actions.append(LoseRequest())
    if fault.error is not None:
        actions.append(AnswerError(_error(fault.error)))
    if fault.delay is not None:
        actions.append(Delay(_seconds(fault.delay)))
    if fault.disconnect is not None:
        actions.append(Disconnect(fault.disconnect))
    if len(actions) != 1:
        raise Failure(
            "Say what to do, one of: --lose-answer, --lose-request, --error NAME, --delay 3s, "
            "--disconnect before|after.",
            exit_code=2,
        )
    return actions[0]


def _error(name: str):
    from ..wire.error_codes import ErrorCode

    try:
        return ErrorCode[name.upper().replace("-", "_")]
    except KeyError:
        raise Failure(
            f"Kafka has no error {name}; names are as NOT_COORDINATOR or PRODUCER_FENCED.",
            exit_code=2,
        ) from None


def _seconds(text: str) -> float:
    found = DURATION.fullmatch(text)
    if found is None:
        raise Failure(f"{text!r} is no time: it looks like 3s, 500ms or 1m.", exit_code=2)
    return float(found[1]) * UNITS_S[found[2]]


def _wait(
    proxy: "ProtocolProxy", rule: "Rule", seconds: float | None, exit_when_done: bool
) -> None:
    """Wait until `seconds` have passed or Ctrl-C is pressed.

    With `exit_when_done`, return earlier, when all faults are injected and the clients have
    disconnected. Clients know only the proxy's address, so they would lose the cluster if the proxy
    ended before them.
    """
    end_s = time.monotonic() + (FOR_EVER_S if seconds is None else seconds)
    try:
        while (left_s := end_s - time.monotonic()) > 0:
            if not exit_when_done:
                time.sleep(min(TURN_S, left_s))
            elif proxy.wait_until_made(rule, min(TURN_S, left_s), rule.times or 1):
                say("done; the proxy ends when its clients have disconnected, or by Ctrl-C")
                _wait_for_clients(proxy, end_s)
                return
    except KeyboardInterrupt:
        say("ended by Ctrl-C")


def _wait_for_clients(proxy: "ProtocolProxy", end_s: float) -> None:
    """Wait until no client has been connected for GONE_S, at most until `end_s`.

    A disconnected client may connect again within this time.
    """
    seen_s = time.monotonic()
    while (now := time.monotonic()) < end_s and now - seen_s < GONE_S:
        if proxy.connections:
            seen_s = now
        time.sleep(min(TURN_S, GONE_S / 4))


def _print_fault(printed: LoopLines, event: "Event") -> None:
    from ..deploy.faults.protocol_proxy.events import ConnectionClosed, FaultMade

    now = time.strftime("%H:%M:%S")
    if isinstance(event, FaultMade):
        printed.tell(f"{now}  {event.request!r}: {event.what}")
    elif isinstance(event, ConnectionClosed) and event.is_refusal:
        printed.say(f"a connection was closed: {event.reason}")

"""`oncelog.prove(...)`, which does the same as the command, for tests.

def test_invoices_are_exactly_once() -> None:
    outcome = oncelog.prove(["python", "invoices.py"], inputs="orders", outputs="invoices")
    assert outcome.is_exactly_once
"""

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...deploy.cluster.failure import Failure
from .outcome import ProveOutcome
from .page import keep_outcome
from .run import Run
from .settings import ProveSettings

CHILD = "oncelog.proof.prove.callable_process"


def prove(
    application: Callable[[], object] | Sequence[str] | str,
    /,
    *,
    inputs: str | Iterable[str] = "prove-in",
    outputs: str | Iterable[str] = "prove-out",
    keep: str | Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> ProveOutcome:
    """Run an application under faults, and return the outcome.

    application: a command, or a function of a module, which runs in its own process with the
    environment of a command. settings: as the options of the command (see `ProveSettings`). Raises
    Failure when the application did not work before the first fault.
    """
    directory = None if keep is None else Path(keep)
    wanted = ProveSettings(
        command=tuple(command_of(application)),
        inputs=_names(inputs),
        outputs=_names(outputs),
        **settings,
    )
    outcome = Run(wanted, directory, say).go()
    if directory is not None:
        keep_outcome(outcome, directory)
    return outcome


def _names(topics: str | Iterable[str]) -> tuple[str, ...]:
    return (topics,) if isinstance(topics, str) else tuple(topics)


def command_of(application: Callable[[], object] | Sequence[str] | str) -> list[str]:
    """Return the command that runs the application.

    Raises Failure for a function that no other process can import.
    """
    if isinstance(application, str):
        return shlex.split(application)
    if not callable(application):
        return list(application)
    name = getattr(application, "__qualname__", "<no name>")
    try:
        file = inspect.getsourcefile(application)
    except TypeError:
        file = None
    if "<" in name or file is None:
        raise Failure(
            f"{name} cannot run in a process of its own: give a function that stands in a module "
            f"(no lambda, no function inside a function), or a command.",
            exit_code=2,
        )
    found = {"module": application.__module__, "name": name, "file": file, "path": sys.path}
    return [sys.executable, "-P", "-m", CHILD, json.dumps(found)]


RUNS_MAX = 8
SINGLES_MAX = 5
REPEATED = 2  # the number of tries of each fault, which may meet another record than before


def candidates(names: Sequence[str], told: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield lists of faults to try, the shortest first. The function does no I/O.

    names: the faults of the run, in order. told: those in the explanation of one record.
    """
    singles = list(dict.fromkeys([*reversed(told), *names]))
    yield from (((name,) * REPEATED) for name in singles[:SINGLES_MAX])
    half = len(names) // 2
    if half > 1:
        yield tuple(names[half:])
        yield tuple(names[:half])


def shrunk(outcome: ProveOutcome, say: Callable[[str], None]) -> str:
    """Return the shortest tried list of faults with which the application still fails.

    The list is text, with names of faults separated by commas. Single faults are tried before
    halves of the list, beginning with the last fault in the explanation of one record. A violation
    that depends on chance may not come again, and then the list stays unchanged.
    """
    names = [struck.name for struck in outcome.made]
    words = {what for _, _, what in outcome.story}
    told = [struck.name for struck in outcome.made if f"FAULT {struck.what}" in words]
    for number, plan in enumerate(candidates(names, told)):
        if number >= RUNS_MAX:
            break
        text = ",".join(plan)
        say(f"trying whether {text} alone breaks the application")
        try:
            again = Run(replace(outcome.settings, faults=text), None, lambda _: None).go()
        except Failure as problem:
            say(f"  no verdict: {problem}")
            continue
        say(f"  {again.verdict.line}")
        if again.judgement.is_violated:
            return text
    return ",".join(names)

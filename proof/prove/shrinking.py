"""The smallest plan that still breaks an application: what was struck, in fewer and fewer faults.

First each single fault that struck before the end of the story, the last ones first; then halves. A
violation by chance may not come again: what is not found stays as it was, and the words say so.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...deploy.cluster.failure import Failure
from .outcome import ProveOutcome
from .run import Run

RUNS_MAX = 8
SINGLES_MAX = 5
REPEATED = 2  # each fault is made so often, since it may meet another record than before


def candidates(names: Sequence[str], told: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Plans to try, the smallest first; told: the faults of the story, in their order. Pure."""
    singles = list(dict.fromkeys([*reversed(told), *names]))
    yield from (((name,) * REPEATED) for name in singles[:SINGLES_MAX])
    half = len(names) // 2
    if half > 1:
        yield tuple(names[half:])
        yield tuple(names[:half])


def shrunk(outcome: ProveOutcome, say: Callable[[str], None]) -> str:
    """The names of the faults, with commas, of the smallest plan found."""
    names = [struck.name for struck in outcome.made]
    words = {what for _, _, what in outcome.story}
    told = [struck.name for struck in outcome.made if f"FAULT {struck.what}" in words]
    for number, plan in enumerate(candidates(names, told)):
        if number >= RUNS_MAX:
            break
        text = ",".join(plan)
        say(f"does it break by {text}?")
        try:
            again = Run(replace(outcome.settings, faults=text), None, lambda _: None).go()
        except Failure as problem:
            say(f"  not told: {problem}")
            continue
        say(f"  {again.verdict.line}")
        if again.judgement.is_violated:
            return text
    return ",".join(names)

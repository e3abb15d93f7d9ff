"""The results of the last run of each switch, stored in results.json for docs/judge.md."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.proof.judge.catalogue import ANOMALIES
from oncelog.wire.errors import KafkaError

from .catalogue import SWITCHES, Switch

if TYPE_CHECKING:
    from .play import Played

PLAYS_MAX = 3  # on processes
FILE = Path(__file__).with_name("results.json")
HEADS = ("switch", "what it breaks", "scenario", "caught by", "seeds", "s", "without it",
         "by chance")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a switch's runs with and without the bug.

    `seconds` is the longest run's time.
    """

    switch: str
    scenario: str
    caught_by: list[str]
    also: list[str]  # found as well
    seeds: int
    seeds_caught: int
    seconds: float
    clean: bool
    by_chance: str = ""  # of `chance`

    @property
    def is_good(self) -> bool:
        """Return whether the bug was detected with each seed, and no anomaly found without it."""
        return self.seeds_caught == self.seeds and self.clean


Found = dict[str, str]


def attempt(
    switch: Switch, *, on_processes: bool = False, seeds: int = 1
) -> tuple[Result, Found, Found]:
    """Run a switch with and without the bug for each seed.

    Returns the result, the findings with the bug, and the findings without the bug.
    """
    on: Found = {}
    off: Found = {}
    caught: set[str] = set()
    count, longest_s, by_chance = 0, 0.0, ""
    for seed in range(1, seeds + 1):
        one = _played(switch, True, on_processes, seed)
        names = one.caught_by(switch)
        caught.update(names)
        count += bool(names)
        on |= one.found
        longest_s = max(longest_s, one.seconds)
        if switch.is_left_to_chance and names:
            by_chance = by_chance or _by_chance(switch, one)
        # A scenario of Raft tries many seeds. The seed that met the bug has to be clean without it.
        same = seed if one.seed is None else one.seed
        off |= _played(switch, False, on_processes, same).found
    result = Result(
        switch.name,
        switch.scenario,
        sorted(caught),
        sorted(on.keys() - caught),
        seeds,
        count,
        round(longest_s, 1),
        not off,
        by_chance,
    )
    return result, on, off


def _by_chance(switch: Switch, played: "Played") -> str:
    """Return text with the number of random seeds until one found the bug, as in `Chance`."""
    from .chance import RANDOM_APART, Chance  # imports a whole simulation

    assert played.seed is not None
    number = played.seed % RANDOM_APART
    return str(Chance(switch.shape, played.seed - number, number + 1, played.seconds, ("",)))


def _played(switch: Switch, is_on: bool, on_processes: bool, seed: int) -> "Played":
    """Run a scenario. On processes it is repeated, if a busy machine may have spoiled the run."""
    from .play import play  # imports a whole simulation

    plays = PLAYS_MAX if on_processes else 1
    while True:
        plays -= 1
        try:
            one = play(switch, is_on=is_on, on_processes=on_processes, seed=seed)
            if not is_on or one.caught_by(switch) or not plays:
                return one
        except (AssertionError, KafkaError):
            if not plays:
                raise


def row(result: Result) -> tuple[str, ...]:
    """Return the cells of a result in the table of docs/judge.md."""
    checks = [
        f"{ANOMALIES[name].check} `{name}`" if name in ANOMALIES else name
        for name in result.caught_by
    ]
    return (
        f"`{result.switch}`",
        SWITCHES[result.switch].breaks,
        result.scenario,
        ", ".join(checks) or "**not caught**",
        f"{result.seeds_caught} of {result.seeds}",
        f"{result.seconds:.1f}",
        "clean" if result.clean else "**not clean**",
        result.by_chance,
    )


def write(results: Iterable[Result]) -> None:
    """Store these results, and keep the stored results of other switches."""
    known = {r.switch: r for r in read()}
    by_name = dict(known)
    for r in results:
        before = known.get(r.switch)
        kept_chance = r.by_chance or (before.by_chance if before else "")
        by_name[r.switch] = replace(r, by_chance=kept_chance)
    done = [by_name[name] for name in SWITCHES if name in by_name]
    kept = {"results": [asdict(r) for r in done], "table": [HEADS, *map(row, done)]}
    FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def read() -> list[Result]:
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    return [Result(**each) for each in kept["results"]]

"""What was found when all switches were tried last: in results.json, and shown in docs/judge.md."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.deploy.checks.catalogue import ANOMALIES
from oncelog.wire.errors import KafkaError

from .catalogue import SWITCHES, Switch

if TYPE_CHECKING:
    from .play import Played

PLAYS_MAX = 3  # on processes
FILE = Path(__file__).with_name("results.json")
HEADS = ("switch", "what it breaks", "scenario", "caught by", "seed", "s", "without it")


@dataclass(frozen=True, slots=True)
class Result:
    """One switch, tried on and off."""

    switch: str
    scenario: str
    caught_by: list[str]
    also: list[str]  # found as well
    seed: int | None
    seconds: float
    clean: bool
    clean_seconds: float

    @property
    def is_good(self) -> bool:
        """Caught by the right name, and nothing was found without the bug."""
        return bool(self.caught_by) and self.clean


def attempt(switch: Switch, *, on_processes: bool = False) -> tuple[Result, "Played", "Played"]:
    """Play it with the bug and without; on processes again, where a busy machine spoilt a play."""
    from .play import play  # brings a whole simulation with it

    def played(is_on: bool, seeds: int | None = None) -> "Played":
        plays = PLAYS_MAX if on_processes else 1
        while True:
            plays -= 1
            try:
                one = play(switch, is_on=is_on, on_processes=on_processes, raft_seeds=seeds)
                if not is_on or one.caught_by(switch) or not plays:
                    return one
            except (AssertionError, KafkaError):
                if not plays:
                    raise

    on = played(True)
    off = played(False, None if on.seed is None else on.seed + 1)
    caught = on.caught_by(switch)
    result = Result(
        switch.name,
        switch.scenario,
        caught,
        sorted(on.found.keys() - set(caught)),
        on.seed if caught else None,
        round(on.seconds, 1),
        not off.found,
        round(off.seconds, 1),
    )
    return result, on, off


def row(result: Result) -> tuple[str, ...]:
    """The cells of a result."""
    checks = [
        f"{ANOMALIES[name].check} `{name}`" if name in ANOMALIES else name
        for name in result.caught_by
    ]
    return (
        f"`{result.switch}`",
        SWITCHES[result.switch].breaks,
        result.scenario,
        ", ".join(checks) or "**not caught**",
        "" if result.seed is None else str(result.seed),
        f"{result.seconds:.1f}",
        "clean" if result.clean else "**not clean**",
    )


def write(results: Iterable[Result]) -> None:
    """Keep them, with their cells as a page shows them."""
    done = list(results)
    kept = {"results": [asdict(r) for r in done], "table": [HEADS, *map(row, done)]}
    FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def read() -> list[Result]:
    """Those that were kept."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    return [Result(**each) for each in kept["results"]]

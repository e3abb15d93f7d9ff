"""What was found when all switches were tried last: in results.json, and shown in docs/judge.md."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from oncelog.deploy.checks.catalogue import ANOMALIES

from .catalogue import SWITCHES, Switch
from .play import Played, play

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


def attempt(switch: Switch) -> tuple[Result, Played, Played]:
    """Play it with the bug and without."""
    on = play(switch, is_on=True)
    seeds = 1 if on.seed is None else on.seed + 1
    off = play(switch, is_on=False, raft_seeds=seeds)
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
    """Keep them."""
    FILE.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8")


def read() -> list[Result]:
    """Those that were kept."""
    return [Result(**each) for each in json.loads(FILE.read_text(encoding="utf-8"))]

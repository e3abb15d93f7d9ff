"""The whole outcome of a run, to print, draw or store."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .diagnosis.catalogue import ApplicationFinding
from .facts import Fact, Struck
from .judgement import Judgement, ProveVerdict
from .settings import ProveSettings
from .story import Line, words

EXAMPLES_MAX = 5
REPR_MAX = 230  # pytest shows 240 characters


@dataclass(slots=True, kw_only=True, repr=False)
class ProveOutcome:
    """The outcome of a run, whose repr pytest shows for a failed `assert`.

    Times are monotonic seconds. exits: the exits of instances that ended by themselves. rest: the
    application came to rest after the faults (see `Unrest`). sure: the names of the faults that
    had to be made.
    """

    settings: ProveSettings
    verdict: ProveVerdict
    judgement: Judgement
    struck: Sequence[Struck]
    sure: Sequence[str] = ()
    story_of: str = ""
    story: Sequence[Line] = ()
    facts: Sequence[Fact] = ()
    exits: Sequence[tuple[float, str, int]] = ()
    lowered: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    apis: Sequence[str] = ()
    notes: Sequence[str] = ()
    rest: bool = True
    findings: Sequence[ApplicationFinding] = ()
    directory: str = ""
    begun_s: float = 0.0
    first_fault_s: float = 0.0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    @property
    def is_exactly_once(self) -> bool:
        return self.verdict.name == "EXACTLY ONCE"

    @property
    def made(self) -> list[Struck]:
        return [struck for struck in self.struck if struck.is_made]

    @property
    def met(self) -> int:
        """Return the number of faults that hit a target with work in flight."""
        return sum(struck.met > 0 for struck in self.made)

    @property
    def untested(self) -> list[str]:
        """Return the names of the sure faults that never met work in flight."""
        return sorted(set(self.sure) - {struck.name for struck in self.made if struck.met})

    def lines(self) -> list[str]:
        """Return the outcome as lines of text, with the verdict last."""
        j, s = self.judgement, self.settings
        lines: list[str] = []
        for kind, found in (("doubled", j.doubled), ("lost", j.lost)):
            if found:
                lines.append(f"{kind}: {_some(list(found))}")
        if j.stray:
            lines.append(f"of no input: {_some([record.place for record in j.stray])}")
        if j.aborted:
            lines.append(f"outputs of aborted inputs: {_some(list(j.aborted))}")
        lines += [
            f"wrong at the end: key {w.key} is {w.found}, and must be {w.expected}"
            for w in j.wrong[:EXAMPLES_MAX]
        ]
        if j.pending:
            lines.append(f"not through: {len(j.pending)} of {_counted_as(j.inputs, 'input')}")
        if self.story:
            lines += [f"the story of {self.story_of}:", *words(self.story, self.begun_s)]
        if self.exits:
            lines.append(f"ended by themselves, and started again: {_counted(self.exits)}")
        lines += self.notes
        for found in self.findings:
            lines += found.lines()
        if self.is_exactly_once and self.untested:
            lines.append(
                f"not tested: {', '.join(self.untested)} (they had to be made, but none met "
                "work in flight; another --seed, a longer run or a less busy machine may test them)"
            )
        lines.append(
            f"{_counted_as(len(self.made), 'fault')}, {self.met} met work in flight; "
            f"seed {s.seed}; "
            f"{self.seconds:.0f} s" + (f"; all results: {self.directory}" if self.directory else "")
        )
        return [*lines, self.verdict.line]

    def as_fields(self) -> dict[str, Any]:
        j = self.judgement
        return {
            "verdict": self.verdict.name,
            "why": self.verdict.why,
            "exit_code": self.exit_code,
            "rest": self.rest,
            "inputs": j.inputs,
            "outputs": j.outputs,
            "doubled": dict(j.doubled),
            "lost": dict(j.lost),
            "pending": len(j.pending),
            "stray": [record.place for record in j.stray],
            "aborted": dict(j.aborted),
            "wrong": [[w.key, w.expected, w.found] for w in j.wrong],
            "seed": self.settings.seed,
            "faults": [
                {"at_s": round(s.at_s - self.begun_s, 3), "name": s.name, "instance": s.instance,
                 "what": s.what, "met": s.met, "is_made": s.is_made}
                for s in self.struck
            ],
            "story_of": self.story_of,
            "story": words(self.story, self.begun_s),
            "groups": list(self.groups),
            "transactional_ids": list(self.transactional_ids),
            "apis": list(self.apis),
            "lowered": list(self.lowered),
            "exits": [[round(at - self.begun_s, 3), name, code] for at, name, code in self.exits],
            "notes": list(self.notes),
            "findings": [
                {"name": f.kind.name, "weight": f.kind.weight, "subject": f.subject,
                 "instance": f.instance, "evidence": f.evidence, "section": f.kind.section}
                for f in self.findings
            ],
            "untested": self.untested,
            "seconds": round(self.seconds, 1),
        }  # fmt: skip

    def __repr__(self) -> str:
        """Return the verdict, the seed, and the faults that explain it, short enough for pytest."""
        faults = [what.removeprefix("FAULT ") for _, _, what in self.story if "FAULT" in what]
        told = f"; {self.story_of}" if self.story_of else ""
        told += f": {', then '.join(faults)}" if faults else ""
        short = f"{self.verdict.line}; seed {self.settings.seed}{told}"
        return f"<{short if len(short) <= REPR_MAX else short[: REPR_MAX - 3] + '...'}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def as_json(self) -> str:
        return json.dumps(self.as_fields(), default=str, indent=1)


def _counted_as(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - EXAMPLES_MAX} more" if len(items) > EXAMPLES_MAX else ""
    return ", ".join(items[:EXAMPLES_MAX]) + more


def _counted(exits: Sequence[tuple[float, str, int]]) -> str:
    counts: dict[tuple[str, int], int] = {}
    for _, name, code in exits:
        counts[name, code] = counts.get((name, code), 0) + 1
    return ", ".join(
        f"{name} with code {code}{f' ({n} times)' if n > 1 else ''}"
        for (name, code), n in counts.items()
    )

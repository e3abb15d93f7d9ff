"""The verdict of runs about a promise. The file does no I/O.

A run keeps a promise, breaks it, or proves nothing. The verdict on a system is `broken` only if the
promise broke in at least two seeds on each of two clusters, ours and Apache Kafka 4.4, and if a
second reader has compared the program with the system's own documentation. Until then the verdict
is SEEN.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from ...deploy.cluster.advice import shell_command
from .reading import requests_not_sent
from .recipe import Recipe

SCHEMA = 1
KEPT, BROKEN, NOTHING = "kept", "broken", "proves nothing"
SEEN = "seen broken here, not yet repeated"
EXIT_CODES = {KEPT: 0, BROKEN: 1, SEEN: 1, NOTHING: 3}
NO_RUN = "NO RUN"  # the application, or the cluster, never worked before the first fault
OTHER_MODE = "OTHER MODE"  # the program did not send the requests of the mode
OURS, PEER = "oncelog", "Apache Kafka 4.4"
SEEDS_MIN = 2
STORY_LINES_MAX, FINDINGS_MAX, FAULTS_MAX = 60, 20, 60
BREAKS = {
    "exactly once": ("doubled", "lost", "stray", "aborted", "wrong"),
    "at least once": ("lost", "stray", "aborted", "wrong"),
    "at most once": ("doubled", "stray", "aborted", "wrong"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedRun:
    """One run of `prove`.

    cluster: OURS, PEER, or the description of another cluster. counts: the numbers of inputs,
    outputs, and each kind of violation. smallest: the fewest faults that broke the promise, if
    searched for. is_kept: None for a run that proves nothing.
    """

    seed: int
    cluster: str
    on: str
    fault_seconds: float
    is_kept: bool | None
    verdict: str
    why: str
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    faults: Sequence[str] = ()
    met: int = 0
    findings: Sequence[str] = ()
    story_of: str = ""
    story: Sequence[str] = ()
    smallest: str = ""
    seconds: float = 0.0


def certified_run(
    promise: str,
    fields: Mapping[str, Any],
    *,
    cluster: str,
    on: str,
    fault_seconds: float,
    uses: Sequence[str] = (),
) -> CertifiedRun:
    """Return the `CertifiedRun` for the outcome of a `prove` run, which is given as JSON values.

    uses: the requests of the mode. If the program did not send one of them, the run proves nothing
    about the mode.
    """
    if unsent := requests_not_sent(uses, fields["apis"]):
        return CertifiedRun(
            seed=fields["seed"], cluster=cluster, on=on, fault_seconds=fault_seconds, is_kept=None,
            verdict=OTHER_MODE, seconds=fields["seconds"],
            why=f"the program sent no {' and no '.join(unsent)}, which an application in this mode "
                "does: hold it against the documentation",
        )  # fmt: skip
    counts = {name: len(fields[name]) for name in BREAKS["exactly once"]}
    counts = {"inputs": fields["inputs"], "outputs": fields["outputs"], **counts}
    counts["pending"] = fields["pending"]
    kept = keeps(promise, fields["verdict"], counts, has_rested=fields["rest"])
    found = {f"{f['name']} ({f['weight']})" for f in fields["findings"]}
    is_told = kept is False and tells_break(promise, fields["story_of"])
    made = [fault for fault in fields["faults"] if fault["is_made"]]
    return CertifiedRun(
        seed=fields["seed"], cluster=cluster, on=on, fault_seconds=fault_seconds, is_kept=kept,
        verdict=fields["verdict"], why=fields["why"].partition("\n")[0], counts=counts,
        faults=[fault["name"] for fault in made][:FAULTS_MAX],
        met=sum(fault["met"] > 0 for fault in made),
        findings=sorted(found)[:FINDINGS_MAX],
        story_of=fields["story_of"] if is_told else "",
        story=fields["story"][:STORY_LINES_MAX] if is_told else (),
        seconds=fields["seconds"],
    )  # fmt: skip


def tells_break(promise: str, story_of: str) -> bool:
    """Return whether the anomaly at the end of `story_of` violates this promise.

    For example, `r1-000001, doubled` is no violation if the promise is at least once.
    """
    kind = story_of.rpartition(", ")[2]
    return kind in BREAKS[promise] or kind not in BREAKS["exactly once"]


def keeps(
    promise: str, verdict: str, counts: Mapping[str, int], *, has_rested: bool
) -> bool | None:
    """Return whether a run kept a promise, or None if the run proves nothing.

    Without `has_rested` the system was still working at the end, and may still write the missing
    outputs. For example, an outbox keeps them in its database.
    """
    broken = [name for name in BREAKS[promise] if counts[name]]
    if broken and (has_rested or broken != ["lost"]):
        return False
    if verdict == "PROVES NOTHING" or not has_rested or counts["pending"]:
        return None
    return True


def verdict_on(runs: Sequence[CertifiedRun], second_reading: str) -> str:
    """Return the verdict on a recipe, given all its runs."""
    broken = {(run.cluster, run.seed) for run in runs if run.is_kept is False}
    if broken:
        seeds = [sum(cluster == where for where, _ in broken) for cluster in (OURS, PEER)]
        return BROKEN if min(seeds) >= SEEDS_MIN and second_reading else SEEN
    return KEPT if runs and all(run.is_kept for run in runs) else NOTHING


def verdict_fields(
    recipe: Recipe, runs: Sequence[CertifiedRun], *, versions: Mapping[str, str], machine: str
) -> dict[str, Any]:
    """Return the fields of verdict.json, whose schema is in docs/certified.md."""
    ordered = sorted(runs, key=lambda run: (run.cluster != OURS, run.cluster, run.seed))
    seeds = [run.seed for run in ordered if run.cluster == OURS] or [run.seed for run in ordered]
    seconds = max((run.fault_seconds for run in ordered), default=0.0)
    return {
        "schema": SCHEMA,
        "recipe": recipe.name,
        "digest": recipe.digest,
        "system": recipe.system,
        "version": recipe.version,
        "language": recipe.language,
        "mode": recipe.mode,
        "promise": recipe.promise,
        "page": recipe.page,
        "second_reading": recipe.second_reading,
        "verdict": verdict_on(ordered, recipe.second_reading),
        "runs": [asdict(run) for run in ordered],
        "versions": dict(versions),
        "machine": machine,
        "seconds": round(sum(run.seconds for run in ordered), 1),
        "command": shell_command(
            "certify", recipe.name, seeds=seed_words(seeds), seconds=f"{seconds:g}"
        ),
    }


def runs_in(fields: object, recipe: Recipe) -> list[CertifiedRun]:
    """Return the earlier runs in a verdict.json that are about this program and promise.

    Raises ValueError for another file, or for a verdict on another recipe.
    """
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    values = cast("dict[str, Any]", fields)
    if values.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    if (name := values.get("recipe", recipe.name)) != recipe.name:
        raise ValueError(f"it is of the recipe {name!r}")
    if (values.get("digest"), values.get("promise")) != (recipe.digest, recipe.promise):
        return []
    try:
        return [CertifiedRun(**run) for run in values["runs"]]
    except (TypeError, KeyError) as problem:
        raise ValueError(f"a run is not as it should be ({problem})") from None


def seed_words(seeds: Sequence[int]) -> str:
    """Return seeds as text, `1:10`, or single seeds if some between are missing."""
    found = sorted(set(seeds))
    if len(found) > 1 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}:{found[-1]}"
    return ",".join(map(str, found))


def tally(runs: Sequence[CertifiedRun], cluster: str) -> str:
    """Return the results of the runs on one cluster as text.

    For example, `kept 4, proves nothing 1 of 5`.
    """
    here = [run for run in runs if run.cluster == cluster]
    counts = [(word, sum(r.is_kept is kept for r in here)) for word, kept in WORDS]
    told = [f"{word} {count}" for word, count in counts if count]
    return f"{', '.join(told)} of {len(here)}" if here else "not run"


WORDS: Sequence[tuple[str, bool | None]] = (("kept", True), ("broken", False), (NOTHING, None))

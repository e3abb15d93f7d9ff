"""The files of a verdict, which are verdict.json, JUnit XML, SARIF, a badge, and a report."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...storage.checkpoint import write_atomically
from ...wire.printable import printable
from ..pages.junit import JunitCase, Problem, junit_xml
from ..prove.diagnosis.catalogue import CATALOGUE
from .digest import BADGE, JUNIT, REPORT, SARIF, VERDICT
from .recipe import Recipe
from .verdict import BROKEN, KEPT, NOTHING, SEEN, CertifiedRun

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
PROBLEMS: Mapping[bool | None, Problem] = {True: "", False: "failure", None: "skipped"}
COLORS = {KEPT: "brightgreen", BROKEN: "red", SEEN: "orange", NOTHING: "lightgrey"}
LEVELS = {"wrong": "error", "exposed": "note"}


def write_results(
    recipe: Recipe, fields: Mapping[str, Any], runs: Sequence[CertifiedRun], out: Path
) -> None:
    """Write the files of a verdict, each atomically.

    report.md is written only if a run broke the promise and no second reader refused the program.
    Otherwise report.md is deleted if the earlier verdict in `out` had a broken run, because then
    the file is an earlier report.
    """
    out.mkdir(parents=True, exist_ok=True)
    had_report = _says_broken(out / VERDICT)
    is_told = any(run.is_kept is False for run in runs) and not recipe.refusal
    texts = {
        VERDICT: json.dumps(fields, indent=1) + "\n",
        JUNIT: junit(recipe, runs),
        BADGE: json.dumps(badge(fields), indent=1) + "\n",
        SARIF: json.dumps(sarif(recipe, runs), indent=1) + "\n",
        REPORT: report(recipe, fields, runs) if is_told else "",
    }
    for name, text in texts.items():
        if text:
            write_atomically(out / name, text.encode())
        elif had_report:
            (out / name).unlink(missing_ok=True)


def _says_broken(file: Path) -> bool:
    """Return whether the file is a verdict of ours with a run that broke the promise."""
    try:
        runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
        return any(run["is_kept"] is False for run in runs)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def junit(recipe: Recipe, runs: Sequence[CertifiedRun]) -> str:
    """Return a JUnit test case for each run.

    A run that broke the promise is failed, and a run that proves nothing is skipped.
    """
    return junit_xml(
        f"certify {recipe.name}",
        [
            JunitCase(
                suite=f"certify.{recipe.name}",
                name=f"seed {run.seed} on {run.cluster}",
                seconds=run.seconds,
                problem=PROBLEMS[run.is_kept],
                message=f"{run.verdict}: {run.why}",
                text="\n".join(run.story),
            )
            for run in runs
        ],
    )


def badge(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the badge of a verdict, in the form of an endpoint of shields.io.

    The badge has the number of runs, since ten runs show more than one.
    """
    runs = [CertifiedRun(**run) for run in fields["runs"]]
    kept = sum(run.is_kept is True for run in runs)
    return {
        "schemaVersion": 1,
        "label": f"{fields['promise']} (oncelog certify)",
        "message": f"kept in {kept} of {len(runs)} runs",
        "color": COLORS[fields["verdict"]],
    }


def sarif(recipe: Recipe, runs: Sequence[CertifiedRun]) -> dict[str, Any]:
    """Return the findings of all runs in SARIF. Each result points to the recipe's program."""
    seeds: dict[str, list[int]] = {}
    wrong = set[str]()
    for run in runs:
        for finding in run.findings:
            name = finding.partition(" ")[0]
            seeds.setdefault(name, []).append(run.seed)
            if finding.endswith("(wrong)"):
                wrong.add(name)
    kinds = [CATALOGUE[name] for name in sorted(seeds) if name in CATALOGUE]
    program = next((p for p in recipe.command if p.startswith("{recipe}/")), "recipe.toml")
    place = {"artifactLocation": {"uri": program.removeprefix("{recipe}/")}}
    return {
        "$schema": SARIF_SCHEMA, "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "oncelog certify", "rules": [
                {"id": kind.name, "shortDescription": {"text": kind.title},
                 "help": {"text": f"{kind.remedy}. See {kind.section}."}} for kind in kinds
            ]}},
            "results": [
                {"ruleId": kind.name, "level": LEVELS["wrong" if kind.name in wrong else "exposed"],
                 "message": {"text": f"{kind.title}; seen with seeds "
                                     f"{', '.join(map(str, sorted(set(seeds[kind.name]))))}"},
                 "locations": [{"physicalLocation": place}]} for kind in kinds
            ],
        }],
    }  # fmt: skip


def report(recipe: Recipe, fields: Mapping[str, Any], runs: Sequence[CertifiedRun]) -> str:
    """Return a text for the system's maintainers, about the broken run with the shortest story."""
    broken = [run for run in runs if run.is_kept is False]
    worst = min(broken, key=lambda run: (not run.story, len(run.story), run.seed))
    is_sure = fields["verdict"] == BROKEN
    kinds = [CATALOGUE[n] for f in worst.findings if (n := f.partition(" ")[0]) in CATALOGUE]
    lines = [
        f"# {printable(recipe.title)}", "",
        *([] if is_sure else [f"**{fields['verdict']}.** Do not send this yet. A promise is called "
          "broken if two seeds on oncelog and two seeds on Apache Kafka 4.4 broke it, and if a "
          "second reader has compared the program with the documentation.", ""]),
        "## What was done", "",
        f"`{fields['command']}` starts a cluster, feeds unique inputs, starts "
        f"{recipe.prove.get('instances', 2)} instances of the program in the recipe "
        f"`{recipe.name}`, injects faults for {worst.fault_seconds:g} s, repairs everything, and "
        "reads the committed outputs. It was run with " + ", ".join(
            f"{name} {fields['versions'][name]}" for name in list(fields["versions"])[:2]
        ) + f", on {fields['machine']}.", "",
        "## What is expected", "",
        f"{recipe.promise.capitalize()}: {recipe.says} ({recipe.page})", "",
        "## What was seen", "",
        "| seed | on | verdict | faults that met work | findings |", "|---|---|---|---|---|",
        *(f"| {run.seed} | {run.cluster} | {run.verdict}: {run.why} | {run.met} | "
          f"{', '.join(run.findings) or 'none'} |" for run in runs), "",
        f"## One record, seed {worst.seed}", "",
        f"These are the events of {worst.story_of or 'one record'}:", "",
        "```", *worst.story, "```", "",
        "## The smallest plan", "",
        f"`--faults {worst.smallest}`" if worst.smallest else
        "`oncelog certify ... --shrink` finds the smallest plan. The plan of this run was "
        + ", ".join(worst.faults)
        + ".", "",
        *(line for kind in kinds for line in
          (f"## {kind.name}", "", f"{kind.title.capitalize()}: {kind.why}. Remedy: {kind.remedy}.",
           "")),
    ]  # fmt: skip
    return "\n".join(printable(line) for line in lines).rstrip() + "\n"


def sentences(run: CertifiedRun) -> str:
    """Return a text of two or three sentences about a run that broke the promise."""
    faults = [line.partition("FAULT ")[2] for line in run.story if "FAULT " in line]
    told = [f"Seed {run.seed} on {run.cluster}: {run.why}."]
    if run.story_of:
        name, _, kind = run.story_of.partition(", ")
        met = f"met this fault: {faults[0]}" if faults else "met no fault"
        told.append(f"The record {name}{f' ({kind})' if kind else ''} {met}.")
    wrong = [f.partition(" ")[0] for f in run.findings if f.endswith("(wrong)")]
    shown = f"these findings: {', '.join(wrong)}" if wrong else "no mistake of the program"
    told.append(f"The protocol shows {shown}.")
    return " ".join(told)

"""Run applications with seeds under `oncelog prove`, with one JSON line for each run.

Runs that are in the file already are not repeated, so an interrupted runner continues where it
stopped.
"""

import json
import secrets
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults.postgres_server import tool
from oncelog.proof.prove.page import keep_outcome
from oncelog.proof.prove.run import Run
from oncelog.proof.prove.settings import ProveSettings

from ...client.dual_write.postgresql import postgresql
from ...interop.kafka_peer import java_source
from .entries import ENTRIES, OTHERS, GalleryEntry

KAFKAJS_VERSION, FRANZ_VERSION = "2.2.4", "v1.20.0"
EXACTLY_ONCE = "EXACTLY ONCE"


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of one application with one seed.

    found: the findings that are mistakes. why: the words of the verdict, or the reason why there is
    none.
    """

    name: str
    seed: int
    verdict: str
    found: list[str]
    exposed: list[str]
    why: str
    seconds: float

    @property
    def entry(self) -> GalleryEntry:
        return ENTRIES[self.name]

    @property
    def is_as_expected(self) -> bool:
        """Return whether the verdict is as expected.

        A wrong application has one of its verdicts. A correct one is exactly once without a
        finding.
        """
        if self.entry.wrong:
            return self.verdict in self.entry.verdicts
        return self.verdict == EXACTLY_ONCE and not self.found

    @property
    def is_named(self) -> bool:
        return self.entry.findings <= set(self.found)


def cells(file: Path) -> list[Cell]:
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").splitlines()
    return [cell for line in lines if (cell := Cell(**json.loads(line))).name in ENTRIES]


def run_all(
    entries: Iterable[GalleryEntry],
    seeds: Sequence[int],
    file: Path,
    *,
    keep: Path | None = None,
    **options: Any,
) -> list[Cell]:
    """Run all entries with all seeds, except those in the file, and return all results.

    keep: a directory for the files of runs with an unexpected result, or with missing findings.
    """
    done = {(cell.name, cell.seed) for cell in cells(file)}
    missing = [(e, seed) for seed in seeds for e in entries if (e.name, seed) not in done]
    with tempfile.TemporaryDirectory() as folder:
        for entry, seed in missing:
            out = keep and keep / f"{entry.name}-{seed}-{secrets.token_hex(2)}"
            cell = run_one(entry, seed, Path(folder), out, **options)
            if out and cell.is_as_expected and cell.is_named:
                shutil.rmtree(out, ignore_errors=True)
            print(f"{cell.name} seed {seed}: {cell.verdict} {cell.why}; {cell.found}", flush=True)
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(asdict(cell)) + "\n")
    return cells(file)


def run_one(
    entry: GalleryEntry, seed: int, folder: Path, out: Path | None = None, **options: Any
) -> Cell:
    """Run one application with one seed, and return the result.

    out: the directory for `oncelog prove --out`. options: more settings of `ProveSettings`.
    """
    with ExitStack() as stack:
        return _run(entry, seed, folder, out, stack, options)


def _run(
    entry: GalleryEntry,
    seed: int,
    folder: Path,
    out: Path | None,
    stack: ExitStack,
    options: dict[str, Any],
) -> Cell:
    directory = Path(tempfile.mkdtemp(dir=folder))
    places = {"{directory}": str(directory)}
    try:
        if entry.needs == "npm":
            places["{kafkajs}"] = str(_kafkajs(folder))
        elif entry.needs == "go":
            places["{franz}"] = str(_franz(folder))
        elif entry.needs == "initdb":
            if tool("initdb") is None:
                raise Failure("PostgreSQL is not installed (Debian: apt install postgresql).")
            places["{postgresql}"] = stack.enter_context(postgresql()).url
    except Failure as failure:
        return Cell(entry.name, seed, "NO RUN", [], [], str(failure)[:600], 0)
    values: dict[str, Any] = {
        "instances": entry.instances, "start_timeout_s": entry.start_timeout_s,
    }  # fmt: skip
    if options.get("bootstrap"):  # earlier records in its topics are not its input
        topic = f"{entry.name}-{seed}-{secrets.token_hex(2)}"
        values |= {"inputs": (f"{topic}-in",), "outputs": (f"{topic}-out",)}
    if entry.sink:
        database = _filled(entry.sink, places)
        url = database if "://" in database else f"sqlite:///{database}"
        values["sink"] = f"{url}?table=invoices&id=id"
        values["outputs"] = ()
        values["environment"] = {"ONCELOG_SINK": database}
    if entry.final:
        values["final"] = entry.final
    command = tuple(_filled(part, places) for part in entry.command)
    if command[0] == "{java}":
        command = tuple(java_source(Path(command[1]), *command[2:]))
    try:
        settings = ProveSettings(command=command, seed=seed, **{**values, **options})
        outcome = Run(settings, out, lambda text: None).go()
        if out is not None:
            keep_outcome(outcome, out)
    except Failure as failure:
        return Cell(entry.name, seed, "NO RUN", [], [], str(failure)[:600], 0)
    found = {"wrong": list[str](), "exposed": list[str]()}
    why = outcome.verdict.why
    for each in outcome.findings:
        found[each.kind.weight].append(each.kind.name)
        if each.kind.weight == "wrong" and not entry.wrong:  # a false one: what led to it
            why += f"; {each.kind.name} at {each.at_s:.3f}: {each.evidence}"
    return Cell(
        entry.name, seed, outcome.verdict.name, sorted(set(found["wrong"])),
        sorted(set(found["exposed"])), why, round(outcome.seconds, 1),
    )  # fmt: skip


def table(found: Sequence[Cell]) -> str:
    """Return a Markdown table with a row for each application."""
    by_name = defaultdict[str, list[Cell]](list)
    for cell in found:
        by_name[cell.name].append(cell)
    lines = [
        "| application | what is wrong | as expected | named | verdicts | findings |",
        "|---|---|---|---|---|---|",
    ]
    for name, entry in ENTRIES.items():
        if not (of_it := by_name.get(name)):
            continue
        kinds = sorted({kind for cell in of_it for kind in cell.found})
        lines.append(
            f"| {name} | {entry.wrong or 'nothing'} | "
            f"{sum(c.is_as_expected for c in of_it)} of {len(of_it)} | "
            f"{f'{sum(c.is_named for c in of_it)} of {len(of_it)}' if entry.findings else '-'} | "
            f"{', '.join(sorted({c.verdict for c in of_it}))} | {', '.join(kinds) or 'none'} |"
        )
    return "\n".join(lines)


def _filled(text: str, places: dict[str, str]) -> str:
    for name, value in places.items():
        text = text.replace(name, value)
    return text


def _kafkajs(folder: Path) -> Path:
    """Return a folder with kafkajs, fetched once a run, and the program."""
    install = ["npm", "install", "--no-audit", "--no-fund", f"kafkajs@{KAFKAJS_VERSION}"]
    return _made(folder / "kafkajs", OTHERS / "copier.js", install)


def _franz(folder: Path) -> Path:
    """Return a folder with the compiled franz-go program."""
    return _made(
        folder / "franz", OTHERS / "franz/main.go", ["go", "mod", "init", "gallery"],
        ["go", "get", f"github.com/twmb/franz-go/pkg/kgo@{FRANZ_VERSION}"],
        ["go", "build", "-o", "franz", "."],
    )  # fmt: skip


def _made(place: Path, program: Path, *commands: list[str]) -> Path:
    if place.exists():
        return place
    place.mkdir()
    shutil.copy(program, place)
    for command in commands:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(place)
            raise Failure(f"{' '.join(command)} failed: {done.stderr[-500:]}")
    return place

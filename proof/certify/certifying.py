"""Installs a recipe, runs `prove` for each seed, and writes the results after each."""

import asyncio
import fcntl
import json
import os
import platform
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...client.admin import BROKER_RESOURCE, Admin
from ...deploy.cluster.ends.guardian import guardian
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.silence import tell_silence
from ...node.linux import processor_model
from ...version import __version__
from ..prove.api import shrunk
from ..prove.outcome import ProveOutcome
from ..prove.run import Run
from ..prove.settings import DEFAULT_IN
from .digest import LOCK, VERDICT
from .environment import Environment, install
from .own_names import deleted_behind, run_name
from .recipe import Recipe
from .results import write_results
from .verdict import (
    NO_RUN,
    OTHER_MODE,
    OURS,
    PEER,
    CertifiedRun,
    certified_run,
    runs_in,
    verdict_fields,
)

FENCE_KEY = "oncelog.transaction.connection.fence"  # a key that no other broker has
PEER_METADATA_LEVEL = 33  # metadata.version of Apache Kafka 4.4 (4.4-IV2)
ASK_TIMEOUT_MS = 10_000
SEEDS_MAX, SEED_MAX = 1_000, 10**9
PLACE = re.compile(r"\{([a-z]+)\}")
Say = Callable[[str], None]


def parse_seeds(text: str) -> list[int]:
    """Parse seeds such as `3`, `1:10` or `1,4,7`, or raise Failure for any other text."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, colon, last = part.partition(":")
            end = int(last) if colon else int(first)
            if not 0 <= int(first) <= end <= SEED_MAX or end - int(first) >= SEEDS_MAX:
                raise ValueError
            found += range(int(first), end + 1)
    except ValueError:
        raise Failure(
            f"--seeds {text} is no FIRST:LAST, as 1:10, of at most {SEEDS_MAX}.", exit_code=2
        ) from None
    return list(dict.fromkeys(found))[:SEEDS_MAX]


def certify(
    recipe: Recipe,
    seeds: Sequence[int],
    out: Path,
    *,
    seconds: float = 20.0,
    bootstrap: str | None = None,
    resume: bool = False,
    shrink: bool = False,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Run a recipe for each seed, and return the fields of verdict.json.

    After each seed the results are written to `out`. Earlier runs on other clusters stay in the
    verdict if they had the same versions, machine and `seconds`. resume: such runs on this cluster
    stay as well, and only seeds without one are run, or with NO RUN or OTHER MODE. shrink: search
    for the fewest faults that break the promise. Raises Failure while another process writes to
    `out`.
    """
    recipe.settings(recipe.command, seconds=seconds, bootstrap=bootstrap)  # Failure: before all
    cluster = OURS if bootstrap is None else asyncio.run(cluster_kind(bootstrap, say))
    _runs_before(out / VERDICT, recipe)  # Failure: before anything is installed, or made in `out`
    if recipe.refusal:
        say(
            f"{recipe.name}: a second person compared the program with its documentation, and "
            f"refused the program or what it promises: {recipe.refusal}"
        )
    environment = install(recipe, say)
    with _alone_in(out):
        before = _runs_before(out / VERDICT, recipe)
        versions = {"oncelog": __version__, **environment.versions}
        alike = _alike(before, _fields_of(out / VERDICT), versions, seconds)
        if others := len(before) - len(alike):
            say(
                f"{others} {'run' if others == 1 else 'runs'} of other versions, of another "
                "machine or with other --seconds do not count any more"
            )
        runs = [run for run in alike if resume or run.cluster != cluster]
        return _by_seeds(
            recipe, environment, seeds, out, cluster, runs, seconds, bootstrap, shrink, say
        )


def _alike(
    runs: Sequence[CertifiedRun],
    fields: Mapping[str, Any],
    versions: Mapping[str, str],
    seconds: float,
) -> list[CertifiedRun]:
    """Return the earlier runs that had these versions, this machine and this duration of faults."""
    if (fields.get("versions"), fields.get("machine")) != (versions, machine()):
        return []
    return [run for run in runs if run.fault_seconds == seconds]


@contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(
                f"Another run writes to {out}. Wait for it, or choose another --out.",
                exit_code=2,
            ) from None
        yield


def _by_seeds(
    recipe: Recipe,
    environment: Environment,
    seeds: Sequence[int],
    out: Path,
    cluster: str,
    runs: list[CertifiedRun],
    seconds: float,
    bootstrap: str | None,
    shrink: bool,
    say: Say,
) -> dict[str, Any]:
    done = {
        run.seed
        for run in runs
        if (run.cluster, run.fault_seconds) == (cluster, seconds)
        and run.verdict not in (NO_RUN, OTHER_MODE)
    }
    versions = {"oncelog": __version__, **environment.versions}
    fields = verdict_fields(recipe, runs, versions=versions, machine=machine())
    for number, seed in enumerate(seeds, 1):
        if seed in done:
            continue
        say(f"{recipe.name} on {cluster}: seed {seed}, run {number} of {len(seeds)}")
        run = _one(recipe, environment, seed, cluster, seconds, bootstrap, shrink, say)
        runs = [r for r in runs if (r.seed, r.cluster) != (seed, cluster)] + [run]
        fields = verdict_fields(recipe, runs, versions=versions, machine=machine())
        write_results(recipe, fields, runs, out)
        say(f"seed {seed}: {run.verdict}: {run.why}")
    return fields


def _one(
    recipe: Recipe,
    environment: Environment,
    seed: int,
    cluster: str,
    seconds: float,
    bootstrap: str | None,
    shrink: bool,
    say: Say,
) -> CertifiedRun:
    on, begun_s = time.strftime("%Y-%m-%d"), time.monotonic()
    with ExitStack() as stack:
        name = Path(tempfile.gettempdir()) / f"oncelog-certify-{secrets.token_hex(4)}"
        stack.enter_context(guardian.kept("directory", name))
        name.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, name, ignore_errors=True)
        own = run_name(recipe.name, seed)
        stack.enter_context(deleted_behind(bootstrap, own, say))
        inputs = (f"{own}-in",) if bootstrap else recipe.prove.get("inputs", DEFAULT_IN)
        here = {"recipe": str(recipe.folder), "state": str(name), "run": own, "in": inputs[0]}
        places = {**environment.places, **here}
        values = _filled_settings(recipe, places, environment)
        if bootstrap:  # what others have left in its topics is not its input
            values |= {"outputs": (f"{own}-out",), **values, "inputs": inputs}
        parts = [_filled(part, places, environment.java) for part in recipe.command]
        values |= {"seed": seed, "seconds": seconds, "bootstrap": bootstrap}
        settings = recipe.settings([word for part in parts for word in part], **values)
        try:
            outcome = Run(settings, None, say).go()
        except Failure as problem:  # it never worked, or something of ours did not
            why, *words = str(problem).replace(str(name), "{state}").splitlines()
            for line in words:  # a verdict holds no output of programs, since it may hold paths
                say(line)
            return CertifiedRun(
                seed=seed,
                cluster=cluster,
                on=on,
                fault_seconds=seconds,
                is_kept=None,
                verdict=NO_RUN,
                why=why,
                seconds=round(time.monotonic() - begun_s, 1),
            )
        fields, uses = outcome.as_fields(), recipe.uses
        run = certified_run(
            recipe.promise, fields, cluster=cluster, on=on, fault_seconds=seconds, uses=uses
        )
        smallest = _smallest(outcome, say) if shrink and run.is_kept is False else ""
    return replace(run, smallest=smallest)


def _smallest(outcome: ProveOutcome, say: Say) -> str:
    say("searching for the smallest set of faults that breaks the promise")
    return shrunk(outcome, say)


def _filled_settings(
    recipe: Recipe, places: Mapping[str, str], environment: Environment
) -> dict[str, Any]:
    given: dict[str, str] = dict(recipe.prove.get("environment", {}))
    filled = {key: _placed(value, places) for key, value in given.items()}
    own = {"ONCELOG_GROUP": places["run"]}
    found: dict[str, Any] = {"environment": {**environment.variables, **own, **filled}}
    if "outputs" in recipe.prove:
        found["outputs"] = tuple(_placed(topic, places) for topic in recipe.prove["outputs"])
    if sink := recipe.prove.get("sink"):  # an address, in which a path is quoted
        quoted = {name: quote(value) for name, value in places.items()}
        found |= {"sink": _placed(sink, quoted), "outputs": ()}
    return found


def _filled(part: str, places: Mapping[str, str], java: Sequence[str]) -> list[str]:
    """Return the arguments that a part of a command becomes when its placeholders are replaced.

    {java} becomes several arguments, any other part one.
    """
    return list(java) if part == "{java}" else [_placed(part, places)]


def _placed(text: str, places: Mapping[str, str]) -> str:
    return PLACE.sub(lambda found: places.get(found[1], found[0]), text)


def _fields_of(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _runs_before(file: Path, recipe: Recipe) -> list[CertifiedRun]:
    try:
        return runs_in(fields, recipe) if (fields := _fields_of(file)) != {} else []
    except ValueError as problem:
        raise Failure(
            f"{file} is no verdict of {recipe.name}: {problem}. Choose another --out.", exit_code=2
        ) from None


async def cluster_kind(bootstrap: str, say: Say) -> str:
    """Return OURS for an oncelog cluster, PEER for Apache Kafka 4.4, else a description."""
    async with Admin({"bootstrap.servers": bootstrap}, timeout_ms=ASK_TIMEOUT_MS) as admin:
        tell_silence(admin, say)
        broker = (await admin.describe_cluster()).brokers[0]
        configs = await admin.describe_configs(str(broker.node_id), BROKER_RESOURCE)
        if any(config.name == FENCE_KEY for config in configs):
            return OURS
        level = (await admin.view.any_broker()).features.get("metadata.version", 0)
        return PEER if level == PEER_METADATA_LEVEL else f"Kafka, metadata.version {level}"


def machine() -> str:
    """Return the operating system, number of cores and processor as text, without the host name."""
    model = processor_model() or platform.processor() or "unknown processor"
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {model}"


def kept_verdicts(recipes: Iterable[Recipe]) -> list[dict[str, Any]]:
    """Return the verdicts that are stored beside the recipes.

    A verdict is left out if the recipe's program has changed since, or if a second reader refused
    the program.
    """
    found: list[dict[str, Any]] = []
    for recipe in recipes:
        if recipe.refusal:
            continue
        if runs := _runs_before(recipe.folder / VERDICT, recipe):
            fields = _fields_of(recipe.folder / VERDICT)
            versions, where = fields["versions"], fields["machine"]
            found.append(verdict_fields(recipe, runs, versions=versions, machine=where))
    return found

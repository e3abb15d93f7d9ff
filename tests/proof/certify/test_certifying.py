"""Test `oncelog certify` from the recipe to the verdict, with correct and wrong programs."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.cli import main as cli
from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.certify import certifying, environment
from oncelog.proof.certify.certifying import certify, parse_seeds
from oncelog.proof.certify.reading import SecondReading
from oncelog.proof.certify.recipe import RECIPES, all_recipes, read_recipe
from oncelog.proof.certify.verdict import KEPT, OURS, CertifiedRun
from oncelog.proof.prove.outputs.database import DatabaseOutputs

from ...programs import CLI

OTHERS = [recipe.name for recipe in all_recipes() if recipe.install]
COMMITS_FIRST = Path(__file__).parents[1] / "prove/programs/commits_first.py"


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [3]), ("1:4", [1, 2, 3, 4]), ("1,4,1", [1, 4]), ("0:0", [0])]
)
def test_certify_seeds_are_parsed_from_ranges_and_single_numbers(
    text: str, seeds: list[int]
) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "4:1", "-1", "1:", "1:99999", "1:2:3"])
def test_certify_seeds_of_another_form_are_refused_with_a_message(text: str) -> None:
    with pytest.raises(Failure, match="is no FIRST:LAST") as told:
        parse_seeds(text)
    assert told.value.exit_code == 2


def test_certify_resume_runs_missing_seeds_and_seeds_that_proved_nothing(
    tmp_path, monkeypatch
) -> None:
    ran: list[int] = []
    verdicts = {1: "EXACTLY ONCE", 2: "NO RUN"}

    def one(recipe, environment, seed, cluster, seconds, *others) -> CertifiedRun:
        ran.append(seed)
        verdict = verdicts.get(seed, "EXACTLY ONCE")
        return CertifiedRun(
            seed=seed, cluster=cluster, on="2026-11-29", fault_seconds=seconds,
            is_kept=True if verdict == "EXACTLY ONCE" else None, verdict=verdict, why="-",
        )  # fmt: skip

    monkeypatch.setattr(certifying, "_one", one)
    recipe = read_recipe(RECIPES / "oncelog-transactional")
    assert certify(recipe, [1, 2], tmp_path)["verdict"] == "proves nothing"
    verdicts[2] = "EXACTLY ONCE"
    fields = certify(recipe, [1, 2, 3], tmp_path, resume=True)
    assert fields["verdict"] == KEPT and ran == [1, 2, 2, 3]
    certify(recipe, [1], tmp_path)
    kept = json.loads((tmp_path / "verdict.json").read_text())
    assert [run["seed"] for run in kept["runs"]] == [1]


@pytest.mark.parametrize("other", ["versions", "machine", "seconds"])
def test_certify_resume_does_not_count_runs_of_other_versions_machines_or_lengths(
    tmp_path, monkeypatch, other: str
) -> None:
    def one(recipe, environment, seed, cluster, seconds, *others) -> CertifiedRun:
        return CertifiedRun(
            seed=seed, cluster=cluster, on="2026-11-29", fault_seconds=seconds, is_kept=True,
            verdict="EXACTLY ONCE", why="-",
        )  # fmt: skip

    monkeypatch.setattr(certifying, "_one", one)
    recipe = read_recipe(RECIPES / "oncelog-transactional")
    certify(recipe, [1, 2], tmp_path)
    if other == "versions":
        monkeypatch.setattr(certifying, "__version__", "9.9.9")
    elif other == "machine":
        monkeypatch.setattr(certifying, "machine", lambda: "another machine")
    seconds = 30.0 if other == "seconds" else 20.0
    said: list[str] = []
    fields = certify(recipe, [3], tmp_path, seconds=seconds, resume=True, say=said.append)
    assert [run["seed"] for run in fields["runs"]] == [3]
    assert any("2 runs" in line and "do not count" in line for line in said), said


def test_certify_of_a_program_refused_by_its_second_reader_prints_the_refusal(
    tmp_path: Path,
) -> None:
    recipe = read_recipe(RECIPES / "oncelog-transactional")
    reading = SecondReading("2026-11-29", recipe.digest, agrees=False, note="It is another mode.")
    said: list[str] = []
    certify(replace(recipe, reading=reading), [], tmp_path, say=said.append)
    assert any("refused the program" in line and "It is another mode." in line for line in said), (
        said
    )


def test_certify_into_a_file_that_is_no_verdict_leaves_it_unchanged(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text("[]")
    with pytest.raises(Failure, match=r"is no verdict.*--out"):
        certify(read_recipe(RECIPES / "oncelog-transactional"), [1], tmp_path)
    assert (tmp_path / "verdict.json").read_text() == "[]"


def test_certify_into_a_folder_locked_by_another_run_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "certify.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Failure, match=r"Another run writes.*--out") as told:
            certify(read_recipe(RECIPES / "oncelog-transactional"), [1], tmp_path)
    assert told.value.exit_code == 2


def test_certify_into_a_folder_with_the_verdict_of_another_recipe_is_refused(
    tmp_path: Path, capsys
) -> None:
    other = json.dumps({"schema": 1, "recipe": "aiokafka-defaults"})
    (tmp_path / "verdict.json").write_text(other)
    assert cli.run(["certify", "oncelog-transactional", "--out", str(tmp_path)]) == 2
    assert "of the recipe 'aiokafka-defaults'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [ZeroDivisionError, BrokenPipeError])
def test_certify_with_an_internal_error_exits_two_and_judges_no_promise(
    tmp_path: Path, monkeypatch, capsys, kind: type[Exception]
) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise kind("a mistake")

    monkeypatch.setattr(certifying, "install", wrong)
    assert cli.run(["certify", "oncelog-transactional", "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert ("Traceback" in told) == (kind is ZeroDivisionError) and "oncelog: a mistake" in told


@pytest.mark.parametrize("format", ["table", "json"])
def test_certify_with_a_closed_stdout_keeps_its_exit_code(
    tmp_path: Path, monkeypatch, format: str
) -> None:
    def one(recipe, environment, seed, cluster, seconds, *others) -> CertifiedRun:
        return CertifiedRun(
            seed=seed, cluster=cluster, on="2026-11-29", fault_seconds=seconds, is_kept=False,
            verdict="AT LEAST ONCE", why="1 doubled",
        )  # fmt: skip

    monkeypatch.setattr(certifying, "_one", one)
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        command = ["certify", "oncelog-transactional", "--format", format]
        assert cli.run([*command, "--out", str(tmp_path)]) == 1


@pytest.mark.parametrize("kept", ["", "[]", "{"])
def test_certify_environment_with_an_unreadable_version_list_is_rebuilt(
    tmp_path: Path, monkeypatch, kept: str
) -> None:
    made: list[Path] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(environment.MAKERS, "pip", lambda folder, *_: made.append(folder))
    monkeypatch.setitem(environment.VERSIONS, "pip", lambda _: {"Python": "3"})
    recipe = read_recipe(RECIPES / "aiokafka-defaults")
    for _ in range(2):
        environment.install(recipe, lambda _: None)
    assert len(made) == 1
    (made[0] / "installed.json").write_text(kept)
    assert environment.install(recipe, lambda _: None).versions == {"Python": "3"}
    assert len(made) == 2


@pytest.mark.parametrize(
    ("name", "installer"),
    [("kafkajs-transactions", "npm"), ("kafka-streams-at-least-once", "maven")],
)
def test_environment_of_another_java_or_node_version_is_recreated(
    tmp_path: Path, monkeypatch, name: str, installer: str
) -> None:
    made: list[Path] = []
    version = ["1"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environment, "_require", lambda *_: None)
    monkeypatch.setattr(environment, "_first_line", lambda *_: version[0])
    monkeypatch.setitem(environment.MAKERS, installer, lambda folder, *_: made.append(folder))
    monkeypatch.setitem(environment.VERSIONS, installer, lambda _: {"language": version[0]})
    recipe = read_recipe(RECIPES / name)
    for version[0] in ("1", "1", "2"):
        assert environment.install(recipe, lambda _: None).versions == {"language": version[0]}
    assert len(made) == 2


def test_certify_npm_program_runs_with_the_node_version_among_its_packages(
    tmp_path, monkeypatch
) -> None:
    def made(folder: Path, *_: object) -> None:
        own = folder / "node_modules/.bin/node"
        own.parent.mkdir(parents=True)
        own.write_text("#!/bin/sh\necho v99.0.0\n")
        own.chmod(0o755)
        (folder / "node_modules/.package-lock.json").write_text('{"packages": {}}')

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environment, "_require", lambda *_: None)
    monkeypatch.setattr(environment, "_version_of", lambda _: "v20")
    monkeypatch.setitem(environment.MAKERS, "npm", made)
    found = environment.install(read_recipe(RECIPES / "kafkajs-transactions"), lambda _: None)
    assert found.versions["Node.js"] == "v99.0.0"
    done = subprocess.run(["node"], env=dict(found.variables), capture_output=True, text=True)
    assert done.stdout == "v99.0.0\n"


def test_certify_path_with_blanks_is_passed_unsplit(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
    monkeypatch.setattr(environment, "_require", lambda *_: None)
    monkeypatch.setattr(environment, "_first_line", lambda *_: "17")
    monkeypatch.setitem(environment.MAKERS, "maven", lambda *_: None)
    monkeypatch.setitem(environment.VERSIONS, "maven", lambda _: {"Java": "17"})
    recipe = read_recipe(RECIPES / "kafka-streams-at-least-once")
    found = environment.install(recipe, lambda _: None)
    command = certifying._filled("{java}", found.places, found.java)
    assert command[0] == "java" and command[-2] == "-cp"
    assert all(path.startswith(str(tmp_path / "a b")) for path in command[-1].split(":"))


def test_sink_path_with_url_characters_is_used_as_a_file_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c#d%20e"
    recipe = read_recipe(RECIPES / "oncelog-dual-write")
    places = {"state": str(folder), "run": "mine"}
    values = certifying._filled_settings(recipe, places, environment.Environment(places, {}))
    assert DatabaseOutputs(values["sink"])._file == folder / "invoices.sqlite"
    assert values["environment"]["DATABASE"] == str(folder / "invoices.sqlite")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECIPES / "oncelog-transactional", tmp_path / "mine"))


def test_certify_output_topic_placeholders_become_names_of_run_and_input(folder: Path) -> None:
    with (folder / "recipe.toml").open("a") as file:
        file.write('[prove]\noutputs = ["{run}.{in}"]\n')
    places = {"run": "mine-1-abc", "in": "mine-1-abc-in"}
    made = environment.Environment(places, {})
    values = certifying._filled_settings(read_recipe(folder), places, made)
    assert values["outputs"] == ("mine-1-abc.mine-1-abc-in",)


def test_certify_prints_the_last_output_of_a_failing_program_and_omits_it_from_the_verdict(
    folder: Path,
) -> None:
    (folder / "copier.py").write_text("raise SystemExit('no such broker setting')\n")
    said: list[str] = []
    fields = certify(read_recipe(folder), [1], folder / "out", say=said.append)
    assert any("no such broker setting" in line for line in said), said
    (run,) = fields["runs"]
    assert run["verdict"] == "NO RUN" and "no such broker setting" not in run["why"]


GO_PROGRAM = """package main

import (
\t"fmt"
\t"os"
)

func main() { fmt.Println("orders from", os.Getenv("ONCELOG_IN")) }
"""


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_certify_builds_a_go_program_and_names_its_versions(
    folder: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
    (folder / "main.go").write_text(GO_PROGRAM)
    with (folder / "recipe.toml").open("a") as file:
        file.write("[install]\ngo = []\n")
    found = environment.install(read_recipe(folder), lambda _: None)
    (program,) = certifying._filled("{go}", found.places, found.java)
    done = subprocess.run([program], env={"ONCELOG_IN": "a"}, capture_output=True, text=True)
    assert done.stdout == "orders from a\n"
    assert found.versions["Go"].startswith("go version")


def test_certify_recipe_of_jars_without_java_sources_compiles_nothing(
    folder: Path, tmp_path: Path, monkeypatch
) -> None:
    commands: list[str] = []
    monkeypatch.setattr(environment, "_run", lambda command, _: commands.append(command[0]))
    environment.MAKERS["maven"](tmp_path, ["a:b:1"], read_recipe(folder))
    assert commands == ["mvn"]


def test_cache_path_that_a_class_path_cannot_contain_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    with pytest.raises(Failure, match="XDG_CACHE_HOME"):
        environment.install(read_recipe(RECIPES / "aiokafka-defaults"), lambda _: None)


def test_certify_installers_and_programs_get_no_python_path_of_ours(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    show = "import json, os; json.dump(dict(os.environ), open('env', 'w'))"
    monkeypatch.setitem(
        environment.MAKERS, "pip",
        lambda folder, *_: environment._run([sys.executable, "-I", "-c", show], folder),
    )  # fmt: skip
    monkeypatch.setitem(
        environment.VERSIONS, "pip", lambda folder: json.loads((folder / "env").read_text())
    )
    found = environment.install(read_recipe(RECIPES / "aiokafka-defaults"), lambda _: None)
    assert "PYTHONPATH" not in found.versions
    assert (found.variables["PYTHONPATH"], found.variables["PYTHONHOME"]) == ("", "")


def test_certify_with_a_missing_language_names_the_language(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, word in (("kafkajs-transactions", "Node.js"), ("kafka-streams-exactly-once", "Java")):
        with pytest.raises(Failure, match=f"needs {word}") as told:
            certify(read_recipe(RECIPES / name), [1], tmp_path / name)
        assert told.value.exit_code == 2 and not (tmp_path / name).exists()


def test_certify_with_an_unreachable_cluster_exits_two_and_names_its_address(
    tmp_path, capsys
) -> None:
    command = ["certify", "oncelog-transactional", "--bootstrap", "127.0.0.1:1"]
    assert cli.run([*command, "--out", str(tmp_path / "out")]) == 2
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_certify_without_a_recipe_lists_the_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["certify", "--format", "json"]) == 0
    assert {row["recipe"] for row in json.loads(capsys.readouterr().out)} >= set(OTHERS)


@pytest.mark.cluster
def test_certify_of_our_own_recipe_keeps_its_promise(tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    command = ["certify", "oncelog-transactional", "--seeds", "1", "--seconds", "4"]
    assert cli.run([*command, "--out", str(out)]) == 0, capsys.readouterr().out
    fields = json.loads((out / "verdict.json").read_text())
    assert fields["verdict"] == KEPT and fields["promise"] == "exactly once"
    (run,) = fields["runs"]
    assert run["cluster"] == OURS and run["met"] > 0 and run["counts"]["inputs"] > 100
    assert str(tmp_path) not in (out / "verdict.json").read_text()


@pytest.mark.cluster
@pytest.mark.chaos
def test_certify_of_a_program_that_breaks_its_promise_writes_a_report(
    tmp_path: Path, capsys
) -> None:
    folder = Path(shutil.copytree(RECIPES / "oncelog-transactional", tmp_path / "planted"))
    shutil.copy(COMMITS_FIRST, folder / "copier.py")
    expected = folder / "expected.toml"
    expected.write_text(re.sub("uses = .*", "", expected.read_text()))
    out = tmp_path / "out"
    assert cli.run(["certify", str(folder), "--seeds", "1", "--out", str(out)]) == 1
    fields = json.loads((out / "verdict.json").read_text())
    assert fields["runs"][0]["counts"]["lost"] > 0
    assert "commit-before-output (wrong)" in fields["runs"][0]["findings"]
    assert "Do not send this yet" in (out / "report.md").read_text()


@pytest.mark.cluster
@pytest.mark.chaos
def test_certify_of_a_program_of_another_mode_reports_no_violation(tmp_path: Path, capsys) -> None:
    folder = Path(shutil.copytree(RECIPES / "oncelog-transactional", tmp_path / "planted"))
    shutil.copy(COMMITS_FIRST, folder / "copier.py")
    out = tmp_path / "out"
    assert cli.run(["certify", str(folder), "--seeds", "1", "--out", str(out)]) == 3
    assert "the program sent no TxnOffsetCommit" in capsys.readouterr().out
    assert not (out / "report.md").exists()


@pytest.mark.cluster
@pytest.mark.chaos
def test_certify_ended_by_sigterm_exits_130_and_leaves_no_temporary_folder(tmp_path: Path) -> None:
    command = [*CLI, "certify", "oncelog-transactional", "--seeds", "1:3", "--out", "out"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path),
        "PATH": str(Path(sys.executable).parent), "HOME": str(tmp_path)},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert any("at work" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    deadline = time.monotonic() + 20
    while left := [p for p in tmp_path.iterdir() if p.name.startswith("oncelog")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.cluster
@pytest.mark.chaos
@pytest.mark.parametrize("name", OTHERS)
def test_certify_of_each_recipe_without_oncelog_clients_gets_a_verdict(
    name: str, tmp_path: Path
) -> None:
    """Each recipe is installed and run with seed 1. Any verdict except NO RUN is accepted."""
    fields = certify(read_recipe(RECIPES / name), [1], tmp_path)
    assert fields["runs"][0]["verdict"] != "NO RUN", fields["runs"][0]["why"]

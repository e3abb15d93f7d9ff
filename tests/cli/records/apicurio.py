"""A real Schema Registry on loopback, Apicurio with the API of Confluent's registry.

Maven downloads the registry once. The registry keeps its schemas in memory.
"""

import os
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...programs import run_to_end

VERSION = "3.0.9"  # later versions need Java 21
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
START_TIMEOUT_S = 90.0
JARS = ("quarkus-run.jar", "*-runner.jar")  # of release 3, of release 2
JVM_FLAGS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def why_there_is_none() -> str:
    """Return a sentence that names the missing programs, or "" if a registry can be run."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    return f"a real registry needs {' and '.join(missing)}" if missing else ""


def archive() -> Path:
    """Return the path of the registry's archive, which Maven downloads first if it is missing."""
    file = (
        Path.home()
        / f".m2/repository/io/apicurio/apicurio-registry-app/{VERSION}"
        / f"apicurio-registry-app-{VERSION}-all.tar.gz"
    )
    if not file.exists():
        command = ["mvn", "-q", "-B", "dependency:get", "-Dtransitive=false"]
        done = run_to_end([*command, f"-Dartifact={ARTIFACT}"], 600)
        assert done.returncode == 0, done.stdout[-2000:]
    return file


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Run a registry for the block, and yield its address for Confluent's clients."""
    with tarfile.open(archive()) as packed:
        packed.extractall(folder, filter="data")
    jar = next(file for name in JARS for file in folder.glob(name))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "apicurio.storage.kind": "sql",
        "quarkus.log.level": "WARN",
    }
    flags = [f"-D{name}={value}" for name, value in settings.items()]
    log = folder / "registry.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            ["java", *JVM_FLAGS, *flags, "-jar", str(jar)],
            stdout=written, stderr=written, cwd=folder, env={**os.environ},
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        _until_it_answers(url, process, log)
        yield url
    finally:
        process.kill()
        process.wait(30)


def _until_it_answers(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"the registry does not answer:\n{log.read_text()[-3000:]}")

"""The jars of Spark's own Kafka connector, fetched through Maven and kept in a cache folder.

The wheel of pyspark does not contain these jars. The connector of the same version is tried first.
A repository may lag behind PyPI or lack versions. In that case the newest set that works with this
Spark is used.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
OTHERS = {"4.3.0": (("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))}  # connector, its token provider


class NoConnector(Exception):
    """Raised if the jars cannot be fetched. The text has the reason."""


def connector_jars() -> list[Path]:
    """Return the jars for the installed pyspark, or raise NoConnector."""
    import pyspark

    version = pyspark.__version__
    pairs = ((version, version), *OTHERS.get(version, ()))
    for connector, tokens in pairs:
        if (folder := _folder(connector, tokens)).is_dir():
            return _needed(folder)
    if shutil.which("mvn") is None:
        raise NoConnector("there is no mvn here to fetch Spark's Kafka connector with")
    problems: list[str] = []
    for connector, tokens in pairs:
        try:
            _fetch(connector, tokens)
            return _needed(_folder(connector, tokens))
        except NoConnector as problem:
            problems.append(str(problem))
    raise NoConnector("; ".join(problems))


def _needed(folder: Path) -> list[Path]:
    """Return the jars in a folder from Maven that Spark does not contain itself."""
    return sorted(jar for jar in folder.glob("*.jar") if jar.name.startswith(NEEDED))


def _folder(connector: str, tokens: str) -> Path:
    said = os.environ.get("ONCELOG_SPARK_CACHE")
    cache = Path(said) if said else Path(tempfile.gettempdir()) / "oncelog-spark"
    return cache / f"connector-{connector}-{tokens}"


def _fetch(connector: str, tokens: str) -> None:
    folder = _folder(connector, tokens)
    folder.parent.mkdir(parents=True, exist_ok=True)
    pom = Path(__file__).with_name("connector_pom.xml")
    work = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        shutil.copy(pom, work / "pom.xml")
        command = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-Dconnector.version={connector}", f"-Dtokens.version={tokens}"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode or len(_needed(work / "jars")) < len(NEEDED):
            why = next((line for line in done.stdout.splitlines() if "Could not" in line), "")
            raise NoConnector(f"Maven has no connector {connector} with {tokens}: {why[:300]}")
        try:
            (work / "jars").rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)

"""The Spark confs set outside of a program that is started by `python` without spark-submit.

pyspark then calls spark-submit itself, which reads the usual places, PYSPARK_SUBMIT_ARGS before
`conf/spark-defaults.conf`. The confs that a program sets override both places, so our defaults must
be set only if neither place has a value.
"""

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path

from ..client.security.properties_file import parse_properties

SUBMIT_ARGS, CONF_DIR = "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"
DEFAULTS_FILE = "spark-defaults.conf"


def submit_confs(environment: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """Return the confs in PYSPARK_SUBMIT_ARGS and the defaults file, by Spark's own names.

    A missing file has no confs.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    parser.add_argument("--master", dest="spark.master")
    parser.add_argument("--driver-memory", dest="spark.driver.memory")
    parser.add_argument("--properties-file")
    given = vars(parser.parse_known_args(shlex.split(environment.get(SUBMIT_ARGS, "")))[0])
    file = given.pop("properties_file") or _defaults_file(environment, spark_home)
    pairs = dict(pair.split("=", 1) for pair in given.pop("conf") if "=" in pair)
    options = {name: value for name, value in given.items() if value is not None}
    return _read(Path(file)) | pairs | options


def _defaults_file(environment: Mapping[str, str], spark_home: Path) -> Path:
    folder = environment.get(CONF_DIR)
    return (Path(folder) if folder else spark_home / "conf") / DEFAULTS_FILE


def _read(file: Path) -> dict[str, str]:
    try:
        found = parse_properties(file.read_text(encoding="utf-8"))
    except OSError:
        return {}
    return {name: value.strip() for name, value in found.items() if name.startswith("spark.")}

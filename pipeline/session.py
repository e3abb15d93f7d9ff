"""A Spark session that is ready to use, with Java, workers of this Python, and the source.

    from oncelog.pipeline import spark_session

    spark = spark_session("flights")                                    # this machine
    spark = spark_session("flights", master="spark://10.0.0.1:7077")    # a cluster
    spark = spark_session("flights", **{"spark.sql.shuffle.partitions": 8})

Keywords have precedence, then the settings of spark-submit, PYSPARK_SUBMIT_ARGS or
spark-defaults.conf (also if the program is started by `python`), then the defaults below. Therefore
a job file that calls `spark_session` needs only the options of spark-submit to run on a cluster. A
session that is already running keeps its settings.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .java import find_java
from .submit_confs import submit_confs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOUND_BY_SPARK = Path(__file__).parents[2] / "pyspark_oncelog.py"  # beside the package
LOCAL_MASTER = "local[*]"
DEFAULTS: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    # Spark's own names, and ours that it does not know. Their values are in no plan and no log.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|ssl[.]key|store[.]key",
}
LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}


def spark_session(app_name: str, **confs: Any) -> "SparkSession":
    """Return the running session, or else create one, and register the source `oncelog`.

    confs: Spark's own names, or the same names with underscores and without `spark` in front
    (`sql_shuffle_partitions=4`). `master` is spark.master. Raises NoJava, whose text has the
    remedy.
    """
    given = {conf_name(name): conf_value(value) for name, value in confs.items()}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started Java already
    if not is_submitted:
        java = find_java()
        if java.home is not None:
            os.environ["JAVA_HOME"] = str(java.home)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    confs = given
    if SparkContext._active_spark_context is None:
        confs = decide(given, _set_elsewhere(is_submitted), os.cpu_count() or 1)
    for name, value in confs.items():
        builder = builder.config(name, value)
    with said_meanwhile("Spark starts"):
        session = builder.getOrCreate()
        register(session)
    return session


@contextmanager
def said_meanwhile(words: str, every_s: float = 5.0) -> Iterator[None]:
    """Print `words` and the elapsed seconds on stderr, every `every_s` seconds while the block
    runs.
    """
    over, began_s = threading.Event(), time.monotonic()

    def tick() -> None:
        while not over.wait(every_s):
            seconds = time.monotonic() - began_s
            print(f"oncelog: {words} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    threading.Thread(target=tick, name="oncelog-progress", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def decide(given: Mapping[str, str], elsewhere: Mapping[str, str], cores: int) -> dict[str, str]:
    """Return the confs to set, which are the given ones, and our defaults for all other names.

    A default is left out if its name has a value `elsewhere`, such as in the options of
    spark-submit.
    """
    master = given.get("spark.master") or elsewhere.get("spark.master") or LOCAL_MASTER
    defaults = {"spark.master": LOCAL_MASTER, **DEFAULTS}
    if master.startswith("local"):
        defaults |= {**LOCAL_DEFAULTS, "spark.sql.shuffle.partitions": str(max(2, cores))}
    return {name: value for name, value in defaults.items() if name not in elsewhere} | dict(given)


def conf_name(name: str) -> str:
    """Return Spark's name for a keyword, such as spark.sql.shuffle.partitions."""
    dotted = name if "." in name else name.replace("_", ".")
    return dotted if dotted.startswith("spark.") else f"spark.{dotted}"


def conf_value(value: Any) -> str:
    """Return a value as Spark's text, with true and false for a bool."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def register(session: "SparkSession") -> None:
    """Register `format("oncelog")` with any session.

    Registration is not needed if Spark finds the installed module `pyspark_oncelog` by itself. Then
    a second registration would cause a warning, or an error that is ignored here.
    """
    if FOUND_BY_SPARK.exists():
        return
    from pyspark.errors import AnalysisException

    from .source.data_source import OncelogSource

    try:
        session.dataSource.register(OncelogSource)
    except AnalysisException as problem:
        if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def hadoop_path(session: "SparkSession", name: str) -> tuple[Any, Any]:
    """Resolve a path or URL as Hadoop does. Return its file system, and the path in it.

    The session's settings are used, as by Spark itself, because only the session may have an object
    store's keys.
    """
    jvm: Any = session._jvm
    java_session: Any = session._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(name)
    return path.getFileSystem(java_session.sessionState().newHadoopConf()), path


def _set_elsewhere(is_submitted: bool) -> dict[str, str]:
    """Return the confs that were set outside of this program.

    Under spark-submit they are read from the JVM, else from PYSPARK_SUBMIT_ARGS and the defaults
    file.
    """
    from pyspark import SparkConf, SparkContext

    if is_submitted:
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    from pyspark.find_spark_home import _find_spark_home

    return submit_confs(os.environ, Path(_find_spark_home()))

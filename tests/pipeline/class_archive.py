"""An archive of Spark's loaded classes (JEP 350), for the Spark session of the tests.

Loading the classes takes half the time of a start. A JVM without the archive writes one at its end.
A JVM that cannot use the archive runs without it.
"""

import contextlib
import os
import tempfile
import time
from pathlib import Path

FOLDER = Path(tempfile.gettempdir()) / "oncelog-spark"
WRITTEN_AFTER_S = 300.0


def class_archive() -> str:
    """Return the JVM options that use the archive, or that write one if there is none."""
    import pyspark

    from oncelog.pipeline.java import find_java

    java = find_java()
    where = f"{java.home}{java.version}".replace(os.sep, "_")
    archive = FOLDER / f"spark-{pyspark.__version__}-{where}.jsa"
    FOLDER.mkdir(exist_ok=True)
    for made in FOLDER.glob(f"{archive.name}.*"):
        with contextlib.suppress(FileNotFoundError):  # another session was faster
            if time.time() - made.stat().st_mtime > WRITTEN_AFTER_S:
                made.replace(archive)
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} -Xlog:disable"
    return f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()} -Xlog:disable"

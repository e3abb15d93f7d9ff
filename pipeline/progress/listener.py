"""The listener that logs a line for each micro-batch of a session, and writes a metrics file.

    from oncelog.pipeline import watch

    watch(spark)                                              # the log, by Python's logging
    watch(spark, metrics_file="/var/lib/node_exporter/invoices.prom")       # for Prometheus, too

A line has Spark's own figures of the batch (numInputRows, the offsets). A line also has the number
of rows that an exactly-once sink has written, which Spark does not know. Errors of the listener
never affect a query. The logger is `oncelog.progress`.
"""

import atexit
import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ..failure_words import sentence_of
from .batch_figures import figures_of
from .exposition import Exposition
from .written import take_written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST_EVENTS_MS = 5_000
log = logging.getLogger("oncelog.progress")


def watch(spark: "SparkSession", *, metrics_file: str | Path | None = None) -> "BatchListener":
    """Report on all queries of a session, until `spark.streams.removeListener` ends the reports.

    metrics_file: a file for the figures in Prometheus' text format, in an existing folder. Raises
    OSError.
    """
    listener = BatchListener(None if metrics_file is None else Path(metrics_file))
    spark.streams.addListener(listener)
    is_ending = threading.Event()
    # The thread does not keep the program from ending if the JVM is frozen. It does not exist in a
    # forked child, which has the same connections to the JVM. Python 3.12 cannot start it later.
    remover = threading.Thread(target=_remove, args=(spark, listener, is_ending), daemon=True)
    remover.start()
    atexit.register(_end, is_ending, remover)
    return listener


def _end(is_ending: threading.Event, remover: threading.Thread) -> None:
    if remover.is_alive():  # in a forked child it is not, and the lock of the event may be held
        is_ending.set()
        remover.join(LAST_EVENTS_MS / 1000 + 1)


def _remove(spark: "SparkSession", listener: "BatchListener", is_ending: threading.Event) -> None:
    """Wait for the last events at the end of the program, and remove the listener.

    Spark would print an error for each event that comes later.
    """
    is_ending.wait()
    with suppress(Exception):  # the session has stopped
        bus = spark.sparkContext._jsc.sc().listenerBus()  # pyright: ignore
        bus.waitUntilEmpty(LAST_EVENTS_MS)
    with suppress(Exception):
        spark.streams.removeListener(listener)


class BatchListener(StreamingQueryListener):
    """The listener of `watch`, which Spark calls from its own thread."""

    def __init__(self, metrics_file: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._exposition, self._file = Exposition(), metrics_file
        self._names: dict[str, str] = {}  # of running queries, by run id
        if metrics_file is not None:
            self._exposition.write(metrics_file)

    def onQueryStarted(self, event: Any) -> None:
        with self._lock:
            query = self._names[str(event.runId)] = str(event.name or event.id)
            self._exposition.started(query)
            self._write()

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        written = take_written(str(progress.id), progress.batchId)
        figures = figures_of(progress, written)
        log.info("%s", figures)
        with self._lock:
            self._names[str(progress.runId)] = figures.query  # for queries older than the listener
            self._exposition.took(figures)
            self._write()

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing when a query has no new data, because its last figures are still correct."""

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            query = self._names.pop(str(event.runId), str(event.id))
            if query not in self._names.values():  # Spark may report its next run first
                self._exposition.ended(query)
            self._write()
        if event.exception is None:
            log.info("query %s has ended", query)
        else:
            log.error("query %s has failed: %s", query, sentence_of(RuntimeError(event.exception)))

    def _write(self) -> None:
        if self._file is None:
            return
        try:
            self._exposition.write(self._file)
        except OSError as problem:
            log.warning("the file with the figures of queries cannot be written: %s", problem)

"""How a benchmark is shown: where it ran, the table."""

import os
import platform
import time
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from .replication import CellResult
from .target import BenchTarget

COLUMNS = {
    "rf": "RF",
    "acks": "ACKS",
    "min_isr": "MIN.ISR",
    "record": "RECORD B",
    "batch": "BATCH B",
    "records_s": "RECORDS/s",
    "mb_s": "MB/s",
    "range": "LOW-HIGH",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "p999": "p99.9 ms",
    "cpu": "CPU s/GB",
    "rss": "RSS MB",
    "link": "SENT MB/MB",
}


def environment(target: BenchTarget, settings: dict[str, Any]) -> dict[str, Any]:
    """Machine, versions and settings: what a figure means nothing without."""
    from ... import __version__

    versions = {"oncelog": __version__, "python": platform.python_version()}
    try:
        from confluent_kafka import libversion

        versions["confluent-kafka"] = metadata.version("confluent-kafka")
        versions["librdkafka"] = str(libversion()[0])
    except ImportError:
        pass
    with open("/proc/cpuinfo") if os.path.exists("/proc/cpuinfo") else open(os.devnull) as file:
        models = [x.split(":", 1)[1].strip() for x in file if x.startswith("model name")]
    return {
        "when": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "versions": versions,
        "bootstrap": target.bootstrap,
        "local_nodes": target.cluster is not None,
        "settings": settings,
    }


def rows(results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """One row a cell; medians over the repetitions."""
    found: list[dict[str, Any]] = []
    for result in results:
        cell = result.cell
        low, high = result.spread(lambda r: r.throughput.mb_per_s)
        rss = [max(r.rss_bytes_by_node.values()) for r in result.repetitions if r.rss_bytes_by_node]
        found.append(
            {
                "rf": cell.replication_factor,
                "acks": cell.acks,
                "min_isr": cell.min_insync if cell.acks == "all" else None,
                "record": cell.record_bytes,
                "batch": cell.batch_bytes,
                "records_s": round(result.median(lambda r: r.throughput.records_per_s) or 0),
                "mb_s": result.median(lambda r: r.throughput.mb_per_s),
                "range": f"{low:.1f}-{high:.1f}",
                "p50": result.median(lambda r: r.latency.percentiles_ms[50.0]),
                "p99": result.median(lambda r: r.latency.percentiles_ms[99.0]),
                "p999": result.median(lambda r: r.latency.percentiles_ms[99.9]),
                "cpu": result.median(lambda r: r.cpu_s_per_gb),
                "rss": max(rss) // 1_000_000 if rss else None,
                "link": result.median(lambda r: r.link_bytes_per_acknowledged_byte),
            }
        )
    return found

"""The environment and the table of figures of a benchmark."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from ...node.linux import processor_model
from .floor import Floor
from .replication import ReplicationResult
from .target import BenchTarget


def environment(target: BenchTarget, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the machine, versions and settings of a measurement, to interpret its figures."""
    from ...version import __version__

    versions = {"oncelog": __version__, "python": platform.python_version()}
    try:
        from confluent_kafka import libversion

        versions["confluent-kafka"] = metadata.version("confluent-kafka")
        versions["librdkafka"] = str(libversion()[0])
    except ImportError:
        pass
    return {
        "when": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": processor_model() or platform.processor(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "versions": versions,
        "bootstrap": target.bootstrap,
        "local_nodes": target.cluster is not None,
        "settings": settings,
    }


def rows(
    results: Sequence[ReplicationResult], floors: Mapping[int, Floor] | None = None
) -> list[dict[str, Any]]:
    """Return one row of figures for each cell, as medians over the repetitions.

    floors: the least possible CPU, by batch size.
    """
    found: list[dict[str, Any]] = []
    for result in results:
        cell = result.cell
        mb_per_s = [r.throughput.mb_per_s for r in result.repetitions]
        rss_bytes = [u.rss_bytes for r in result.repetitions for u in r.used.values()]
        cpu_s_per_gb = result.median(lambda r: r.cpu_s_per_gb)
        row = {
            "RF": cell.replication_factor,
            "ACKS": cell.acks,
            "MIN.ISR": cell.min_insync if cell.acks == "all" else None,
            "RECORD B": cell.record_bytes,
            "BATCH B": cell.batch_bytes,
            "RECORDS/s": round(result.median(lambda r: r.per_s) or 0),
            "MB/s": result.median(lambda r: r.throughput.mb_per_s),
            "LOW-HIGH": f"{min(mb_per_s):.1f}-{max(mb_per_s):.1f}",
            "p50 ms": result.median(lambda r: r.latency.percentiles_ms[50.0]),
            "p99 ms": result.median(lambda r: r.latency.percentiles_ms[99.0]),
            "p99.9 ms": result.median(lambda r: r.latency.percentiles_ms[99.9]),
            "CPU s/GB": cpu_s_per_gb,
            "RSS MB": max(rss_bytes) // 1_000_000 if rss_bytes else None,
            "SENT MB/MB": result.median(lambda r: r.link_bytes_per_acknowledged_byte),
            "MSGS/MB": result.median(lambda r: r.link_messages_per_mb),
            "SWITCHES/MB": result.median(lambda r: r.context_switches_per_mb),
        }
        if floors is not None:
            floor = floors[cell.batch_bytes].cpu_s_per_gb(cell.replication_factor)
            row["FLOOR s/GB"] = floor
            row["x FLOOR"] = None if cpu_s_per_gb is None else cpu_s_per_gb / floor
        found.append(row)
    return found

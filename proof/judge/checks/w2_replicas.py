"""Check W2: replicas are equal where all of them must have the records.

Partitions that are not compacted are compared batch for batch, from the highest log start to the
high watermark. This is the leader's high watermark, if the leader reported all replicas in sync,
because an in-sync replica has all records below it. Otherwise it is the lowest of the replicas' own
high watermarks, which may have been written late. Offsets, size, leader epoch and CRC-32C are
compared, which together cover every byte. Replicas compact their logs separately, so for compacted
partitions the newest record of each key must be the same.
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.arrays import Array
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View
from ..history.schema import NONE
from ..log_anomalies import REPLICA_DIVERGENCE

DIVERGENCE = Anomaly.of_log(REPLICA_DIVERGENCE, "W2")
ANOMALIES = (DIVERGENCE,)
_COMPARED = ("base_offset", "last_offset", "leader_epoch", "size_bytes", "crc")


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find differences between the replicas of each partition with at least two dumped logs."""
    history = view.history
    ends, replicas = history.column("ends", "partition"), history.column("ends", "replica")
    compacted = set(ends[history.column("ends", "is_compacted") == 1].tolist())
    found: list[tuple[int, int, int, int]] = []  # partition, offset, the two replicas
    leader = replicas == NONE
    is_full = leader & (history.column("ends", "in_sync") >= history.column("ends", "replicas"))
    for table, columns in (("batches", _COMPARED), ("survivors", ("offset", "digest"))):
        partition = history.column(table, "partition")
        replica = history.column(table, "replica")
        values = [history.column(table, name) for name in columns]
        for at in np.unique(partition).tolist():
            if (at in compacted) != (table == "survivors"):
                continue
            of_ends = (ends == at) & (replicas >= 0)
            low = history.column("ends", "log_start_offset")[of_ends].max(initial=0)
            of_leader = is_full & (ends == at)
            # more copies than replicas: one was moved away, and its remaining copy is behind
            is_whole = of_ends.sum() <= history.column("ends", "replicas")[of_leader].max(initial=0)
            known = of_leader if is_whole else of_ends
            watermarks = history.column("ends", "high_watermark")[known]
            high = watermarks[watermarks >= 0].min(initial=np.iinfo(np.int64).max)
            here = np.flatnonzero((partition == at) & (replica >= 0))
            last = values[1] if table == "batches" else values[0]
            here = here[(values[0][here] >= low) & (last[here] < high)]
            # a replica without any batch there is compared, too
            dumped = replicas[of_ends] if table == "batches" else replica[here]
            numbers = np.union1d(replica[here], dumped).tolist()
            copies = [np.stack([v[here[replica[here] == n]] for v in values], 1) for n in numbers]
            for number, copy in zip(numbers[1:], copies[1:], strict=True):
                offset = _first_difference(copies[0], copy)
                if offset is not None:
                    found.append((at, offset, numbers[0], number))

    def case(difference: tuple[int, int, int, int]) -> Case:
        at, offset, one, other = difference
        name = evidence.partition(at)
        facts = {"partition": name, "offset": offset, "replicas": [one, other]}
        return Case(f"{name}@{offset}: {REPLICA_DIVERGENCE.sentence % (one, other)}", facts)

    return finding(DIVERGENCE, found, case)


def _first_difference(one: Array, other: Array) -> int | None:
    """Return the first offset at which two copies differ."""
    common = min(len(one), len(other))
    differs = np.flatnonzero((one[:common] != other[:common]).any(axis=1))
    if len(differs):
        return int(min(one[differs[0], 0], other[differs[0], 0]))
    if len(one) != len(other):
        longer = one if len(one) > len(other) else other
        return int(longer[common, 0])
    return None

"""J3: nobody reads under read_committed what certainly failed, nor what was never sent."""

from collections.abc import Iterable

import numpy as np

from ....wire import log_anomalies
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View
from ..history.schema import Outcome

ABORTED_READ = Anomaly("G1a", "J3", "a value of a failed send or aborted transaction was read")
PHANTOM_READ = Anomaly.of_log(log_anomalies.PHANTOM_READ, "J3")
ANOMALIES = (ABORTED_READ, PHANTOM_READ)


def check(view: View) -> Iterable[Finding]:
    """Readings, the last one included, whose writer failed or is unknown."""
    evidence = Evidence(view)
    for anomaly, of_writer in (
        (ABORTED_READ, view.outcome == Outcome.FAIL),
        (PHANTOM_READ, np.arange(len(view.partition)) >= view.sends),
    ):
        rows = [np.flatnonzero(of_writer[reads.writer]) for reads in view.committed]
        numbered = np.array(
            [(i << 40) + int(row) for i, found in enumerate(rows) for row in found], np.int64
        )

        def case(number: int) -> Case:
            reads, row = view.committed[number >> 40], number & ((1 << 40) - 1)
            send = int(reads.writer[row])
            partition, offset = int(reads.partition[row]), int(reads.offset[row])
            writer = evidence.send(send)
            facts = {
                "value": view.value(send),
                "partition": evidence.partition(partition),
                "offset": offset,
                "writer": writer,
                "reader": evidence.read(reads, row),
                **evidence.around(partition, offset),
            }
            how = "which nobody sent" if send >= view.sends else "whose writer failed"
            where = f"{facts['partition']}@{offset}"
            return Case(f"value {facts['value']} at {where}, {how}, was read", facts)

        yield from finding(anomaly, numbered, case)

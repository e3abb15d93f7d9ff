"""Check J4: a reader of a partition has read everything before the last value that it read.

The bound of a partition is the highest index at which a value that was read occurs for the first
time. A value is lost if it has a proven send, was never read, and occurs for the last time at or
below the bound. Values below the log start offset, and values that compaction may have removed, are
excepted. (First and last differ only if J1 or J2 have findings.)
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence, Facts, told
from ..analysis.findings import Anomaly, Finding, finding
from ..analysis.view import View

LOST_WRITE = Anomaly("lost-write", "J4", "all readers skipped a committed value")
ANOMALIES = (LOST_WRITE,)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find proven sends that were never read, although a later value of the partition was read."""
    order = view.order
    bound = np.full(len(view.history.names) + 1, -1, np.int64)
    reader = np.full(len(bound), -1, np.int64)  # a send whose reading gave the bound
    was_read = np.flatnonzero(view.is_read & (order.first_place >= 0))
    index = order.index[order.first_place[was_read]]
    partition = view.places.group_of(order.first_place[was_read])
    np.maximum.at(bound, partition, index)
    at_bound = was_read[index == bound[partition]]
    reader[view.places.group_of(order.first_place[at_bound])] = at_bound
    del was_read, index, partition
    unread = np.flatnonzero(view.is_proven & ~view.is_read & (order.last_place >= 0))
    where = view.places.group_of(order.last_place[unread])
    lost = unread[order.index[order.last_place[unread]] <= bound[where]]
    offset = view.places.number_of(order.last_place[lost])
    lost = lost[~view.may_be_gone(view.places.group_of(order.last_place[lost]), offset)]
    lost = lost[np.argsort(order.last_place[lost], kind="stable")]

    def facts_of(send: int) -> Facts:
        place, offset = evidence.place(int(order.first_place[send]))
        number = int(view.places.group_of(order.first_place[send : send + 1])[0])
        return {
            "value": view.value(send),
            "partition": place,
            "offset": offset,
            "index": int(order.index[order.first_place[send]]),
            "max_read_index": int(bound[number]),
            "writer": evidence.send(send),
            "read_beyond": evidence.first_reader(int(reader[number])),
            **evidence.around(number, offset),
        }

    sentence = "value {value} at {partition}@{offset} was never read, later ones were"
    return finding(LOST_WRITE, lost, told(sentence, facts_of))

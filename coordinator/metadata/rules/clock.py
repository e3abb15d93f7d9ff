"""The advance of the cluster's clock by `oncelog clock advance`, which is permanent."""

from ....wire.errors import InvalidRequest, PolicyViolation
from ..clock_advances import STEPS_MAX, TOTAL_MS_MAX
from ..cluster_tables import ClusterTables
from ..commands import AdvanceClock
from ..results import Result

CLOCK_KEY, CONTROLLED = "oncelog.clock", "controlled"
AT_MS_MAX = 2**62
NOT_CONTROLLED = (
    "The clock of this cluster is the machine's, and cannot be advanced: that is for clusters that "
    "were started with `oncelog up --clock controlled`."
)


def advance_clock(tables: ClusterTables, command: AdvanceClock) -> Result:
    """Advance the clock, or refuse with POLICY_VIOLATION if the configuration forbids it."""
    if tables.defaults.get(CLOCK_KEY) != CONTROLLED:
        raise PolicyViolation(NOT_CONTROLLED)
    advances = tables.clock_advances
    if command.by_ms < 1 or not 0 <= command.at_ms <= AT_MS_MAX:
        raise InvalidRequest(f"A clock is not advanced by {command.by_ms} ms: only forwards.")
    if advances.total_ms + command.by_ms > TOTAL_MS_MAX or len(advances.steps) >= STEPS_MAX:
        raise PolicyViolation(
            f"A clock is advanced {STEPS_MAX:,} times at most, and by 100 years in all: start a "
            "new cluster."
        )
    tables.put_clock_advances(advances.advanced(command.at_ms, command.by_ms))
    return Result()

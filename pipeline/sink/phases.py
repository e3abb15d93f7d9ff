"""What the sink's protocol waits for, in each state.

Pure; the rules stand in protocol.py.
"""

from enum import Enum, auto


class Phase(Enum):
    """The names are those of what was asked for last."""

    IDLE = auto()  # nothing is known
    LOOKING = auto()
    FENCING = auto()
    READING = auto()
    LISTING = auto()
    CLAIMING = auto()
    JUDGING = auto()  # whether what was decided can be committed
    ROLLING_BACK = auto()
    UNDECIDING = auto()
    RECOVERING = auto()  # roll forward at the start
    SWEEPING = auto()
    READY = auto()
    WRITING = auto()
    ASKING = auto()  # whether what tasks left open can be committed
    DECIDING = auto()
    READING_AGAIN = auto()
    COMMITTING = auto()
    LISTING_LEFT = auto()
    SWEEPING_LEFT = auto()
    FINISHING = auto()
    ALARMING = auto()
    LISTING_FAILED = auto()
    SWEEPING_FAILED = auto()
    STOPPED = auto()

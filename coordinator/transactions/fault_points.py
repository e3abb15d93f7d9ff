"""The names of the moments at which a coordinator may die, in the order of a transaction.

Tests kill the process there, through the `fault_point` that the composition root hands out.
"""

from .states import PREPARED, TransactionState

BEFORE_ONGOING = "transactions.before-ongoing"
AFTER_ONGOING = "transactions.after-ongoing"
BEFORE_PREPARE = "transactions.before-prepare"
AFTER_PREPARE = "transactions.after-prepare"  # durable; no marker is sent yet
AFTER_SOME_MARKERS = "transactions.after-some-markers"
AFTER_ALL_MARKERS = "transactions.after-all-markers"  # written; that is not durable yet
AFTER_COMPLETE = "transactions.after-complete"
BEFORE = {TransactionState.ONGOING: BEFORE_ONGOING} | dict.fromkeys(PREPARED, BEFORE_PREPARE)
AFTER = {TransactionState.ONGOING: AFTER_ONGOING} | dict.fromkeys(PREPARED, AFTER_PREPARE)

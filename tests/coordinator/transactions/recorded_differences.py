"""The recorded cases in which our answers differ from Apache Kafka's, with the reasons.

The first matching row counts. A row that matches no case fails the full run.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from ...interop.recorded.cases import Case


class Meant(NamedTuple):
    """A known difference from Kafka's answers, with its reason.

    The other fields are patterns, as in `recorded/stage`.
    """

    reason: str
    state: str = "*"
    start_epoch: str = "*"
    request: str = "*"
    relation: str = "*"
    kafka: str = "*"
    ours: str = "*"

    def covers(self, case: Case, kafka: str, ours: str) -> bool:
        """Return whether this entry describes the difference between the two answers."""
        request = f"{case.request.name} v{case.version}"
        start = str(case.start_epoch)
        values = (case.state.name, start, request, case.relation, kafka, ours)
        return all(map(fnmatchcase, values, self[1:]))


_WAITS = "*| CONCURRENT_TRANSACTIONS | CONCURRENT_TRANSACTIONS"
_NO_EPOCH = (
    "a batch with a producer id and without an epoch is nobody's; Kafka asks its coordinator"
)
_TOLD_AT_ONCE = (
    "who is not the producer of what is prepared is refused at once; Kafka lets some of them wait"
)
_LAST_EPOCH = (
    "the last epoch is nobody's: with the decision the producer is already the next one; Kafka "
    "has the last epoch wait, and fences others by it"
)
_KAFKA_FAILS = "Kafka fails on epochs that are used up (an IllegalStateException)"
_KNOWN_BY_IDENTITY = (
    "a repeated EndTxn is known by the identity that sent it; Kafka takes every epoch lower by "
    "one for it, also -1, and also after an end that raised none"
)
_ANSWERED_AGAIN = (
    "an InitProducerId whose answer got lost is answered as often as it is asked; Kafka fences "
    "the second repetition after a change of producer id"
)
_FENCED_FIRST = (
    "an InitProducerId that names an epoch which is not the transaction's is fenced at once; "
    "Kafka aborts the transaction of the living session first"
)
_ABORTED_SEQUENCES = (
    "a batch with the sequence numbers of an aborted batch is refused; Kafka acknowledges it as a "
    "duplicate without storing it, so that its records are lost"
)
_MISSING_EPOCHS = {  # relations with a negative epoch, by state and first epoch
    "older": (("none", "0"), ("Empty", "0"), ("*V1", "0"), ("Ongoing V2", "0")),
    "*": (("*", "32766"),),
}

MEANT: tuple[Meant, ...] = (
    *(
        Meant(_NO_EPOCH, state, start, "Produce*", relation, ours="*| INVALID_RECORD")
        for relation, places in _MISSING_EPOCHS.items()
        for state, start in places
    ),
    *(
        Meant(_TOLD_AT_ONCE, "Prepare*", "*", "*", relation, _WAITS, f"*| {error} | {error}")
        for relation in ("older", "newer", "another producer")
        for error in ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    ),
    *(
        Meant(
            _LAST_EPOCH, state, "32766", "*", "*", ours="Prepare*| INVALID_PRODUCER_ID_MAPPING"
        )
        for state in ("Prepare* V2", "PrepareAbort by fence *")
    ),
    *(
        Meant(
            _FENCED_FIRST, "Ongoing*", "*", "InitProducerId of its owner *", relation,
            "*| CONCURRENT_TRANSACTIONS *", f"*| {error} | {error}",
        )
        for relation in ("older", "newer")
        for error in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    ),
    Meant(_KAFKA_FAILS, request="InitProducerId*", kafka="*UNKNOWN_SERVER_ERROR"),
    Meant(
        _KNOWN_BY_IDENTITY, "Complete*", "*", "EndTxn * v5", "older",
        ours="*| PRODUCER_FENCED | PRODUCER_FENCED",
    ),
    *(
        Meant(
            _ANSWERED_AGAIN, "Complete*", "32766", "InitProducerId of its owner *", "client",
            f"*| NONE new 0 -> Empty new 0 | {error}", "*| NONE new 0 -> Empty new 0 | NONE new 0",
        )
        for error in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    ),
    Meant(
        _ABORTED_SEQUENCES, "CompleteAbort*", request="Produce*",
        kafka="*| NONE", ours="*| UNKNOWN_PRODUCER_ID",
    ),
)  # fmt: skip

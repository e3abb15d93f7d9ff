"""The outcome of one request: a kind, and the name of an error."""

from typing import Any, Literal, NamedTuple

from ...deploy.faults.protocol_proxy.errors_in_answers import first_error
from ...wire.error_codes import ErrorCode
from ...wire.printable import printable

Came = Literal["served", "refused", "elsewhere", "closed", "silent", "garbage", "not asked"]
# Another broker, or this one a moment later, would answer; clusters rarely agree in these.
ELSEWHERE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
    }
)
ANSWERED = frozenset({"served", "refused", "elsewhere"})


class AskOutcome(NamedTuple):
    """The outcome of one request: what came back, and the error's name, or why it was not sent."""

    came: Came
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.came} {self.detail}".rstrip()


SERVED, CLOSED, SILENT = AskOutcome("served"), AskOutcome("closed"), AskOutcome("silent")


def outcome_of(body: Any) -> AskOutcome:
    """Return the outcome of a decoded answer, by its first error at any position."""
    error = first_error(body)
    if not error:
        return SERVED
    return AskOutcome("elsewhere" if error in ELSEWHERE else "refused", error_name(error))


def error_name(number: int) -> str:
    try:
        return ErrorCode(number).name
    except ValueError:
        return f"error {number}"


def not_asked(why: str) -> AskOutcome:
    return AskOutcome("not asked", printable(why))


def agree(one: AskOutcome, other: AskOutcome) -> bool:
    """Return whether two outcomes count as the same behaviour."""
    if one.came in ANSWERED and other.came in ANSWERED and "elsewhere" in (one.came, other.came):
        return True
    return one == other

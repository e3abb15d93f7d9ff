"""Lower timeouts in requests, so that they expire within a short run.

A member leaves its group after 6 s (the lowest default of Kafka, group.min.session.timeout.ms), and
a transaction is aborted after the given time. The rebalance timeout is not lowered, so the proxy
causes no removal of an application that is slow to rebalance. In version 0 of JoinGroup one value
means both timeouts, and is not lowered. Groups of KIP-848 use their broker's timeout, and
transactions with two-phase commit have none.
"""

from ....wire.messages import control
from ....wire.messages.api_keys import INIT_PRODUCER_ID, JOIN_GROUP
from .bodies import is_known
from .events import Request

SESSION_TIMEOUT_MS = 6_000
REBALANCE_TIMEOUT_FROM = 1


def with_lower_timeouts(
    request: Request, frame: memoryview, transaction_timeout_ms: int
) -> tuple[bytes | memoryview, str]:
    """Return the frame for the broker, and text about a lowered timeout, or "" if none was lowered.

    A transaction timeout is lowered to `transaction_timeout_ms`, a session timeout to 6 s. Raises
    MalformedFrame.
    """
    key, version = request.api_key, request.version
    if key not in (JOIN_GROUP, INIT_PRODUCER_ID) or not is_known(key, version):
        return frame, ""
    body = request.body
    if key == JOIN_GROUP:
        # kio leaves the unit out of the names of durations.
        name, at_most = "session_timeout", SESSION_TIMEOUT_MS
        is_meant = version >= REBALANCE_TIMEOUT_FROM
    else:
        name, at_most = "transaction_timeout", transaction_timeout_ms
        is_meant = bool(body.transactional_id) and not getattr(body, "enable2_pc", False)
    before: int = getattr(body, name)
    if not is_meant or before <= at_most:
        return frame, ""
    ours = control.decode_request(key, version, frame[request.body_offset :])
    setattr(ours, name, at_most)
    changed = bytes(frame[: request.body_offset]) + control.encode_request(key, version, ours)
    return changed, f"{name}_ms {before} -> {at_most}"

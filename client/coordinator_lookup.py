"""Finds the coordinator of a group or a transactional id."""

from typing import Any

from ..wire.errors import error_for
from .cluster_view import ClusterView
from .security.permissions import error_about

FIND_COORDINATOR = 10
GROUP, TRANSACTION = 0, 1  # kinds of coordinators


async def find_coordinator(view: ClusterView, key: str, key_type: int = GROUP) -> int:
    """Return the coordinator's node id after one request without a retry, or raise its error."""
    connection = await view.any_broker()
    values = {"key_type": key_type, "coordinator_keys": [key]}
    (found,) = (await connection.call(FIND_COORDINATOR, values)).coordinators
    raise_error_of(found, key, "Read" if key_type == GROUP else "Write")
    return int(found.node_id)


def raise_code(
    code: int, message: str | None = None, *, name: str = "", operation: str = ""
) -> None:
    """Raise the error of a code, unless it is 0.

    operation: the ACL operation on the resource `name`, for messages about permissions.
    """
    if code:
        words = message or None
        raise error_about(code, name, operation, words) if operation else error_for(code, words)


def raise_error_of(result: Any, name: str = "", operation: str = "") -> None:
    """Raise the error of one entry of an answer, as `raise_code` does."""
    message = getattr(result, "error_message", None)
    raise_code(result.error_code, message, name=name, operation=operation)

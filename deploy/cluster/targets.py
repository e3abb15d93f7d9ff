"""Targets of faults: a node by its number, or by the role that it plays at this moment.

`Cluster.resolve` finds the node, `Cluster.kill` does the kill -9.
"""

import re
from typing import Literal, NamedTuple

from .failure import Failure

SYNTAX = "1 | leader:TOPIC/PARTITION | txn:ID | group:ID | controller | random"


class FaultTarget(NamedTuple):
    """A fault's target. `name`: topic, group or transactional id; `number`: node or partition."""

    role: Literal["node", "leader", "group", "txn", "controller", "random"]
    name: str = ""
    number: int = -1


def parse(text: str) -> FaultTarget:
    """Return the target that a person means; Failure with the syntax otherwise."""
    if text.isdecimal():
        return FaultTarget("node", number=int(text))
    if text in ("controller", "random"):
        return FaultTarget(text)
    role, _, rest = text.partition(":")
    if role == "leader":
        return FaultTarget(role, *parse_partition(rest))
    if role in ("txn", "group") and rest:
        return FaultTarget(role, rest)
    raise Failure(f"{text!r} is no target. A target is {SYNTAX}.")


def parse_partition(text: str) -> tuple[str, int]:
    """Return `TOPIC/PARTITION` as a pair."""
    match = re.fullmatch(r"([A-Za-z0-9._-]+)/(\d+)", text)
    if match is None:
        raise Failure(f"{text!r} names no partition. Write TOPIC/NUMBER, for instance orders/0.")
    return match[1], int(match[2])

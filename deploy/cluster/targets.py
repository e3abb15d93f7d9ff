"""Targets of faults, which are nodes by their number, or by their current role.

`Cluster.resolve` in `local_cluster.py` finds the node, and `Cluster.kill` kills it.
`proof/chaos/context.py` chooses the targets of chaos.
"""

import re
from typing import Literal, NamedTuple

from .failure import Failure

SYNTAX = "1 | leader:TOPIC/PARTITION | txn:ID | group:ID | controller | random"


class FaultTarget(NamedTuple):
    """A fault's target.

    name: a topic, group or transactional id. number: a node or partition.
    """

    role: Literal["node", "leader", "group", "txn", "controller", "random"]
    name: str = ""
    number: int = -1


def parse(text: str) -> FaultTarget:
    """Parse the target of a command, or raise Failure with the syntax if it is invalid."""
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

"""Targets of faults: a node by its number, or by the role that it plays at this moment."""

import random
import re
from dataclasses import dataclass
from typing import Literal

from .failure import Failure

SYNTAX = "1 | leader:TOPIC/PARTITION | txn:ID | group:ID | controller | random"


@dataclass(frozen=True, slots=True)
class NodeNumber:
    """A node by its id."""

    node_id: int


@dataclass(frozen=True, slots=True)
class LeaderOf:
    """The node that leads a partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CoordinatorOf:
    """The node that coordinates a consumer group, or a transactional id."""

    kind: Literal["group", "txn"]
    name: str


@dataclass(frozen=True, slots=True)
class Controller:
    """The node whose voter leads the metadata group."""


@dataclass(frozen=True, slots=True)
class RandomNode:
    """Any node that the fault can be done to."""


Target = NodeNumber | LeaderOf | CoordinatorOf | Controller | RandomNode


def parse(text: str) -> Target:
    """The target that a person means; Failure with the syntax otherwise."""
    if text.isdigit():
        return NodeNumber(int(text))
    if text == "controller":
        return Controller()
    if text == "random":
        return RandomNode()
    role, _, rest = text.partition(":")
    if role == "leader":
        return LeaderOf(*parse_partition(rest))
    if role in ("txn", "group") and rest:
        return CoordinatorOf(role, rest)
    raise Failure(f"{text!r} is no target. A target is {SYNTAX}.")


def parse_partition(text: str) -> tuple[str, int]:
    """`TOPIC/PARTITION` as a pair."""
    match = re.fullmatch(r"([A-Za-z0-9._-]+)/(\d+)", text)
    if match is None:
        raise Failure(f"{text!r} names no partition. Write TOPIC/NUMBER, for instance orders/0.")
    return match[1], int(match[2])


def choose(candidates: list[int], dice: random.Random) -> int:
    """One node at random among those that the fault can be done to."""
    if not candidates:
        raise Failure("No node is in a state to which this can be done. See: oncelog ps")
    return dice.choice(candidates)

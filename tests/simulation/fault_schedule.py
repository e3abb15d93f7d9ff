"""The random schedule of faults for a seed, which `conductor` executes.

A fault consists of words and numbers (see `outcome.Fault`), so a schedule can be printed, reduced,
and passed on the command line.
"""

import errno
import random
from collections.abc import Sequence

from .outcome import Fault, Shape

# kind: (weight, shortest, longest) in virtual seconds
KINDS: dict[str, tuple[float, float, float]] = {
    "kill": (16, 0.05, 6.0),
    "kill-all": (3, 0.3, 3.0),
    "crash-io": (7, 0.1, 3.0),
    "crash-point": (8, 0.1, 3.0),
    "pause": (10, 0.1, 7.0),
    "stutter": (4, 1.0, 5.0),
    "cut": (12, 0.2, 7.0),
    "cut-clients": (6, 0.2, 5.0),
    "slow-links": (5, 0.5, 5.0),
    "hold-link": (5, 0.2, 1.0),
    "hold-client": (20, 0.3, 5.0),
    "reset-links": (4, 0.0, 0.0),
    "reset-clients": (5, 0.0, 0.0),
    "noise": (5, 1.0, 6.0),
    "slow-disk": (4, 1.0, 6.0),
    "disk-full": (3, 0.5, 4.0),
    "sync-error": (3, 0.5, 2.0),
    "power": (7, 0.3, 4.0),
    "power-io": (4, 0.3, 4.0),
    "clock": (3, 0.0, 0.0),
    "stop": (5, 0.3, 3.0),
    "kill-client": (4, 0.1, 2.0),
    "wipe": (1, 0.2, 2.0),
    "keep": (14, 0.3, 13.0),
    "one-way": (9, 0.2, 60.0),
    "disk-errors": (7, 0.3, 8.0),
    "flip": (2, 0.2, 2.0),
}
ONLY_DURABLE = {"power-all": (5.0, 0.3, 3.0)}
ONLY_NAMED = {  # by a shape
    "power-truncation": (16.0, 0.1, 1.0),
    "damage": (40.0, 0.1, 2.0),
}
EVERY_KIND = KINDS | ONLY_DURABLE | ONLY_NAMED
DEAF, MUTE = 0, 1
ROLES = ("controller", "transactions", "group", "leader")
CLIENTS = ("c1", "c2")
OF_LINKS = ("cut", "cut-clients", "slow-links", "hold-link", "hold-client")
FOLLOWING = 0.3  # of the faults: those that hit soon after another one, at the same place
FOLLOWS_WITHIN_S = 2.5
OF_NOTHING = ("kill-all", "power-all", "power-truncation", "noise")


class ImpossibleFault(ValueError):
    """A fault of an unknown kind, or with an unknown target."""


def require_possible(faults: Sequence[Fault], shape: Shape) -> None:
    """Raise ImpossibleFault for an unknown kind of fault, or a target outside of the cluster."""
    nodes = [str(i) for i in range(1, shape.nodes + 1)]
    for fault in faults:
        if fault.kind not in EVERY_KIND:
            raise ImpossibleFault(f"{fault}: there is no such kind; see fault_schedule.py")
        parts = fault.target.split(",")
        match fault.kind:
            case kind if kind in OF_LINKS:
                ends = (*nodes, *CLIENTS)
                known = {"", *(f"{a}>{b}" for a in ends for b in ends)}
                words = "links are 1>2 or c1>2"
            case kind if kind in OF_NOTHING:
                known, words = {""}, "it has no target"
            case "kill-client":
                known, words = set(CLIENTS), "clients are c1 and c2"
            case "reset-links" | "reset-clients":
                known, words = {*nodes, *CLIENTS}, "two ends are named: 1,2 or c1,2"
            case _:
                known = {*nodes, *(ROLES if len(parts) == 1 else ())}
                words = f"nodes are 1 to {shape.nodes}, roles {', '.join(ROLES)}"
        if not known.issuperset(parts):
            raise ImpossibleFault(f"{fault}: there is no target {fault.target!r}; {words}")


def draw(seed: int, shape: Shape) -> list[Fault]:
    """Return the faults of a seed in the order of their times.

    Raises ImpossibleFault if the shape names an unknown kind.
    """
    rng = random.Random(f"faults of {seed}")
    kinds = dict(KINDS)
    if shape.durable:
        kinds |= ONLY_DURABLE
    if shape.kinds:
        kinds |= ONLY_NAMED
        if unknown := set(shape.kinds) - kinds.keys():
            raise ImpossibleFault(f"of a shape's kinds these cannot be: {', '.join(unknown)}")
        kinds = {kind: kinds[kind] for kind in shape.kinds}
    names = list(kinds)
    weights = [kinds[name][0] for name in names]
    found: list[Fault] = []
    for _ in range(shape.faults):
        kind = rng.choices(names, weights)[0]
        _, shortest, longest = kinds[kind]
        seconds = round(shortest + (longest - shortest) * rng.random() ** 2, 3)
        at_s = rng.uniform(0.0, max(0.5, shape.seconds - 1.0))
        target, amount = _target(rng, kind, shape)
        if found and rng.random() < FOLLOWING:
            before = rng.choice(found)
            at_s = before.at_s + rng.uniform(0.0, before.seconds + FOLLOWS_WITHIN_S)
            if kind != "reset-links" and _is_node(target):
                target = _hit_by(before, rng) or target
        at_s = round(at_s, 3)
        found.append(Fault(at_s=at_s, kind=kind, target=target, seconds=seconds, amount=amount))
    return sorted(found, key=lambda fault: (fault.at_s, fault.kind, fault.target))


def _is_node(target: str) -> bool:
    return target.isdigit() or target in ROLES


def _hit_by(fault: Fault, rng: random.Random) -> str:
    """Return the node or role that a fault affects, a random end of its links, or ""."""
    if _is_node(fault.target):
        return fault.target
    ends = {end for link in fault.target.split(",") for end in link.split(">") if end.isdigit()}
    return rng.choice(sorted(ends)) if fault.kind in OF_LINKS and ends else ""


def _target(rng: random.Random, kind: str, shape: Shape) -> tuple[str, float]:
    nodes = list(range(1, shape.nodes + 1))
    node = rng.choice([str(rng.choice(nodes)), rng.choice(ROLES)])
    match kind:
        case "kill" | "pause":
            if rng.random() < 0.15 and len(nodes) > 1:
                return ",".join(map(str, sorted(rng.sample(nodes, 2)))), 0.0
            return node, 0.0
        case "cut":
            return _cut(rng, nodes), 0.0
        case "cut-clients":
            client, there = rng.choice(CLIENTS), rng.choice(nodes)
            out, back = f"{client}>{there}", f"{there}>{client}"
            return rng.choice([f"{out},{back}", out, back]), 0.0
        case "hold-client":
            client = rng.choice(CLIENTS)
            theirs = rng.choice([nodes, nodes, [rng.choice(nodes)]])
            is_back = rng.random() < 1 / 3
            links = (f"{i}>{client}" if is_back else f"{client}>{i}" for i in theirs)
            return ",".join(links), round(rng.uniform(0.1, 0.6), 2)  # of the connections there
        case "slow-links":
            return _cut(rng, nodes), round(rng.choice([0.02, 0.1, 0.4]), 3)
        case "keep":
            return node, float(rng.randint(1, 8))
        case "one-way":
            return node, float(rng.choice([DEAF, MUTE]))
        case "disk-errors":
            return node, float(rng.choice([errno.ENOSPC, errno.EMFILE, errno.EIO]))
        case "hold-link":
            one, other = rng.sample(nodes, 2) if len(nodes) > 1 else (1, 1)
            return f"{one}>{other}", round(rng.uniform(0.3, 3.0), 3)
        case "reset-links":
            return ",".join(map(str, rng.sample(nodes, min(2, len(nodes))))), 0.0
        case "reset-clients":
            return f"{rng.choice(['c1', 'c2'])},{rng.choice(nodes)}", 0.0
        case "noise":
            return "", round(rng.choice([0.01, 0.05, 0.2]), 3)
        case "slow-disk":
            return node, rng.choice([20.0, 100.0, 400.0])
        case "crash-io" | "power-io":
            return node, float(rng.randint(0, rng.choice([3, 40])))
        case "crash-point":
            return node, float(rng.randint(1, rng.choice([8, 80])))
        case "clock":
            return node, rng.choice([-3_600_000.0, -2_500.0, 2_500.0, 600_000.0])
        case "damage":
            return node, float(rng.randint(0, 1))
        case "kill-client":
            return rng.choice(["c1", "c2"]), 0.0
        case "kill-all" | "power-all" | "power-truncation":
            return "", 0.0
    return node, 0.0


def _cut(rng: random.Random, nodes: list[int]) -> str:
    """Return the links of a random cut, such as those between two halves of the nodes."""
    shape = rng.choice(["halves", "halves", "deaf", "mute", "ring", "link", "one way"])
    side = set(rng.sample(nodes, rng.randint(1, max(1, len(nodes) // 2))))
    pairs = [(a, b) for a in nodes for b in nodes if a != b]
    one = rng.choice(nodes)
    count = len(nodes)
    match shape:
        case "halves":
            chosen = [(a, b) for a, b in pairs if (a in side) != (b in side)]
        case "one way":
            chosen = [(a, b) for a, b in pairs if a in side and b not in side]
        case "deaf":
            chosen = [(a, b) for a, b in pairs if b == one]
        case "mute":
            chosen = [(a, b) for a, b in pairs if a == one]
        case "ring" if count > 3:
            chosen = [(a, b) for a, b in pairs if (a - b) % count not in (1, count - 1)]
        case _:
            other = rng.choice([n for n in nodes if n != one] or [one])
            chosen = [(one, other), (other, one)] if rng.random() < 0.5 else [(one, other)]
    return ",".join(f"{a}>{b}" for a, b in chosen)

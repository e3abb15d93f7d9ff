"""Problems of a cluster, in sentences with a next step, without I/O.

Problems with the state bad come before those with the state note. Results of `oncelog doctor` for
a cluster on this machine are included. The other problems come from the protocol, so they work for
any Kafka.
"""

from collections.abc import Iterable, Iterator

from ..deploy.cluster.advice import shell_command
from ..deploy.inspect.explain import name_of
from ..wire.identifiers import TopicPartition
from .facts import ClusterFacts, Trouble

NAMED_MAX = 4
LONG_OPEN_MS = 10_000  # what ends sooner is everyday life
FROM_THE_PROTOCOL = ("without leader", "not fully in sync", "controller")  # told here, fresher


def troubles(facts: ClusterFacts, now_ms: int) -> list[Trouble]:
    """Return the problems of a cluster, each with the state bad or note."""
    looked_ms = facts.transactions_ms(now_ms)
    found = [*_partitions(facts), *_transactions(facts, looked_ms), *_groups(facts)]
    found += [c for c in facts.checks if c.state != "ok" and c.about not in FROM_THE_PROTOCOL]
    for part, problem in facts.silent.items():
        found.append(Trouble(f"no news of {part}", "bad", problem, "what is shown of it is old"))
    return sorted(found, key=lambda check: check.state != "bad")


def _partitions(facts: ClusterFacts) -> Iterator[Trouble]:
    leaderless = [key for key, p in facts.partitions.items() if p.leader < 0]
    if leaderless:
        last = sorted({n for key in leaderless for n in facts.partitions[key].isr})
        start = f"start one that was in sync: node {', '.join(map(str, last)) or 'unknown'}"
        yield Trouble("without leader", "bad", _named(leaderless), start)
    behind = [key for key, p in facts.partitions.items() if p.leader >= 0 and _misses(facts, key)]
    if behind:
        away = sorted({n for key in behind for n in _misses(facts, key)})
        nodes = f"start or mend node {', '.join(map(str, away))}"
        yield Trouble("not fully in sync", "note", _named(behind), nodes)


def _transactions(facts: ClusterFacts, looked_ms: int) -> Iterator[Trouble]:
    """Yield a problem for each hanging transaction, and each that has been open for 10 seconds.

    Only the first open transaction of each partition is reported, because readers wait at it.
    """
    held: dict[str, list[TopicPartition]] = {}
    for key, holders in sorted(facts.holders.items()):
        first = holders[0]
        known = first.transaction
        if known is None or not first.is_known(key):
            producer = first.producer.producer_id
            end = shell_command("txn abort", partition=name_of(key), producer_id=producer)
            words = f"producer {producer} hangs in it: no coordinator ends that"
            yield Trouble(name_of(key), "bad", f"{words}; {_held_back(facts, [key])}", end)
        elif looked_ms - known.start_ms >= LONG_OPEN_MS:
            held.setdefault(known.transactional_id, []).append(key)
    for name, keys in held.items():
        known = facts.transactions.get(name)
        if known is not None:  # else it has ended meanwhile
            seconds = max(0, looked_ms - known.start_ms) / 1000
            words = f"open for {seconds:.0f} s, holds {_named(keys)}; {_held_back(facts, keys)}"
            yield Trouble(f"transaction {name}", "note", words, shell_command("txn explain", name))


def _held_back(facts: ClusterFacts, keys: list[TopicPartition]) -> str:
    count = sum(facts.offsets_of(key).held_back for key in keys)
    return f"{count:,} offsets cannot be read with read_committed"


def _groups(facts: ClusterFacts) -> Iterator[Trouble]:
    for name, group in sorted(facts.groups.items()):
        for key, offset in group.committed.items():
            start = facts.offsets_of(key).log_start
            if start is not None and offset < start:
                words = f"committed {offset} in {name_of(key)}, whose log begins at {start}"
                reset = shell_command("group reset", name, topic=name_of(key))
                yield Trouble(f"group {name}", "bad", words, reset)


def _misses(facts: ClusterFacts, key: TopicPartition) -> set[int]:
    info = facts.partitions[key]
    return set(info.replicas) - set(info.isr)


def _named(keys: Iterable[TopicPartition]) -> str:
    names = [name_of(key) for key in sorted(keys)]
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")

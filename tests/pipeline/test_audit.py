"""Who judges the audit: clean logs raise no alarm, every planted violation is found by its name."""

import random
from collections.abc import Iterator

import pytest

from oncelog.pipeline.audit.judgement import ANOMALIES, judge, summary

from ..deploy.judge.edit import Edit
from ..deploy.judge.edit import NoPlace as NoPlaceInHistory
from ..deploy.judge.plants import all_plants
from ..deploy.judge.world import World
from .exhibits import Exhibits
from .raw_plants import PLANTS
from .raw_world import EDGES, NoPlace, RawWorld

OF_HISTORIES = (
    "offset-disorder", "leader-epoch-fell", "zombie-append", "sequence-gap", "sequence-repeated",
    "plain-in-transaction", "coordinator-epoch-fell", "open-transaction", "mixed-markers",
    "replica-divergence",
)  # fmt: skip


def edge_of(name: str, seed: int) -> str:
    if name in ("aborted-visible", "committed-hidden", "phantom-read", "replica-divergence"):
        return EDGES[seed % 4]
    return ("whole", "cut", "wrap")[seed % 3]


def plant_rows(exhibits: Exhibits, name: str, wanted: int) -> None:
    done, seed = 0, 0
    while done < wanted:
        seed += 1
        assert seed < 200, f"no place for {name}"
        replicas = 3 if name == "replica-divergence" else 0
        number = 10_000 + len(exhibits.planted)
        world = RawWorld(number, f"{name}-{seed}", edge_of(name, seed), replicas=replicas)
        try:
            PLANTS[name](world)
        except NoPlace:
            continue
        exhibits.add_world(world, name)
        done += 1


def plant_history(exhibits: Exhibits, name: str, wanted: int) -> None:
    done, seed = 0, 0
    while done < wanted:
        seed += 1
        edit = Edit(World(seed, steps=500).recorder, random.Random(seed))
        try:
            all_plants()[name](edit)
        except NoPlaceInHistory:
            continue
        exhibits.add_history(edit, f"history-{name}-{seed}", name)
        done += 1


@pytest.fixture(scope="module")
def found(spark) -> Iterator[tuple[Exhibits, dict[str, set[str]], dict[str, object]]]:
    """What was planted where, what was found where, and the summary."""
    exhibits = Exhibits()
    for number in range(15):
        edge = EDGES[number % len(EDGES)]
        exhibits.add_world(RawWorld(number, f"clean-{number}-{edge}", edge, replicas=number % 3))
    for number in range(2):
        edit = Edit(World(number, steps=500).recorder, random.Random(number))
        exhibits.add_history(edit, f"clean-history-{number}", "")
    for name in PLANTS:
        plant_rows(exhibits, name, 4)
    for name in OF_HISTORIES:
        plant_history(exhibits, name, 1)
    judgement = judge(exhibits.evidence(spark), chunk_size=16)
    names: dict[str, set[str]] = {}
    for row in judgement.violations.collect():
        assert row["sentence"]
        names.setdefault(row["topic"].partition("|")[0], set()).add(row["anomaly"])
    yield exhibits, names, summary(judgement)
    judgement.close()


def test_clean_logs_raise_no_alarm(found) -> None:
    exhibits, names, _ = found
    clean = [topic for topic, planted in exhibits.planted.items() if not planted]
    assert len(clean) == 17
    assert {topic: names[topic] for topic in clean if topic in names} == {}


def test_every_anomaly_is_planted() -> None:
    assert set(PLANTS) == set(ANOMALIES)


@pytest.mark.parametrize("name", ANOMALIES)
def test_a_planted_violation_is_found_by_its_name(found, name: str) -> None:
    exhibits, names, _ = found
    planted = [topic for topic, what in exhibits.planted.items() if what == name]
    assert len(planted) >= 4
    assert {t: names.get(t) for t in planted if name not in names.get(t, set())} == {}


def test_the_summary_counts_what_was_looked_at(found) -> None:
    exhibits, _, told = found
    assert told["records"] == sum(not row["is_control"] for row in exhibits.rows)
    assert told["markers"] == sum(bool(row["is_control"]) for row in exhibits.rows)
    assert set(told["violations"]) == set(ANOMALIES)
    assert told["committed"] > 100
    assert told["aborted"] > 100

"""Who judges the audit: clean logs raise no alarm, every planted violation is found by its name."""

import random

import pytest
from pyspark.sql import functions as F

from oncelog.pipeline.audit.judgement import ANOMALIES, judge, summary
from oncelog.pipeline.audit.neighbours import with_neighbours

from ...deploy.judge.edit import Edit
from ...deploy.judge.edit import NoPlace as NoPlaceInHistory
from ...deploy.judge.plants import all_plants
from ...deploy.judge.world import World
from .exhibits import Exhibits, lightly
from .raw_plants import BROUGHT_ALONG, PLANTS
from .raw_world import EDGES, NoPlace, RawWorld

OF_HISTORIES = (
    "offset-disorder", "leader-epoch-fell", "zombie-append", "sequence-gap", "sequence-repeated",
    "plain-in-transaction", "coordinator-epoch-fell", "open-transaction", "mixed-markers",
    "replica-divergence",
)  # fmt: skip

Spotted = tuple[str, int, int]  # anomaly, partition, offset


def edge_of(name: str, seed: int) -> str:
    if name in ("aborted-visible", "committed-hidden", "replica-divergence"):
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
            spot = PLANTS[name](world)
        except NoPlace:
            continue
        exhibits.add_world(world, name, spot)
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


def compacted_since(seed: int) -> RawWorld:
    """A log that was compacted once more after its reader was shown it."""
    world = RawWorld(seed, f"clean-{seed}-since", "compacted")
    gone = [row for row in world.rows if not row.is_control and row.outcome != "aborted"][::3]
    world.rows = [row for row in world.rows if row not in gone]
    assert len(gone) > 3
    return world


@pytest.fixture(scope="module")
def found(spark, tmp_path_factory) -> tuple[Exhibits, dict[str, set[Spotted]], dict[str, object]]:
    """What was planted where, what was found where, and the summary."""
    exhibits = Exhibits()
    for number in range(15):
        edge = EDGES[number % len(EDGES)]
        exhibits.add_world(RawWorld(number, f"clean-{number}-{edge}", edge, replicas=number % 3))
    exhibits.add_world(compacted_since(100))
    for number in range(2):
        edit = Edit(World(number, steps=500).recorder, random.Random(number))
        exhibits.add_history(edit, f"clean-history-{number}", "")
    for name in PLANTS:
        plant_rows(exhibits, name, 3)
    for name in OF_HISTORIES:
        plant_history(exhibits, name, 1)
    spotted: dict[str, set[Spotted]] = {}
    with lightly(spark):
        evidence = exhibits.evidence(spark, tmp_path_factory.mktemp("rows"))
        judgement = judge(evidence, chunk_size=16)
        for row in judgement.violations.collect():
            assert row["sentence"]
            one = (row["anomaly"], row["partition"], row["offset"])
            spotted.setdefault(row["topic"].partition("|")[0], set()).add(one)
        told = summary(judgement)
        judgement.close()
    return exhibits, spotted, told


def names(spotted: set[Spotted]) -> set[str]:
    return {anomaly for anomaly, _, _ in spotted}


def test_clean_logs_raise_no_alarm(found) -> None:
    exhibits, spotted, _ = found
    clean = [topic for topic, planted in exhibits.planted.items() if not planted]
    assert len(clean) == 18
    assert {topic: spotted[topic] for topic in clean if topic in spotted} == {}


def test_every_anomaly_is_planted() -> None:
    assert set(PLANTS) == set(ANOMALIES)


@pytest.mark.parametrize("name", ANOMALIES)
def test_a_planted_violation_is_found_by_its_name_and_nothing_else_is(found, name: str) -> None:
    exhibits, spotted, _ = found
    planted = [topic for topic, what in exhibits.planted.items() if what == name]
    assert len(planted) >= 3
    told = {topic: names(spotted.get(topic, set())) for topic in planted}
    may_be = {name} | BROUGHT_ALONG.get(name, set())
    assert {t: found for t, found in told.items() if name not in found or not found <= may_be} == {}


def test_violations_are_found_where_they_were_planted(found) -> None:
    exhibits, spotted, _ = found
    assert len(exhibits.spots) >= 3 * 8
    wanted = {topic: (exhibits.planted[topic], *spot) for topic, spot in exhibits.spots.items()}
    assert {t: (w, spotted.get(t)) for t, w in wanted.items() if w not in spotted.get(t, ())} == {}


@pytest.mark.parametrize("chunk_size", [1, 5, 1_000])
def test_what_lies_before_and_after_does_not_depend_on_where_a_group_is_cut(spark, chunk_size):
    rng = random.Random(chunk_size)
    rows = [(g, at, rng.choice((None, rng.randrange(9)))) for g in "ab" for at in range(40)]
    with lightly(spark):
        frame = spark.createDataFrame(rows, "name string, at long, value int")
        value = F.col("value")
        made = with_neighbours(
            frame, ["name"], "at", chunk_size=chunk_size,
            before={"most": value}, after={"least": value},
        ).collect()  # fmt: skip
    assert len(made) == len(rows)
    for row in made:
        same = [(at, v) for name, at, v in rows if name == row["name"] and v is not None]
        assert row["most"] == max((v for at, v in same if at < row["at"]), default=None)
        assert row["least"] == min((v for at, v in same if at > row["at"]), default=None)


def test_the_summary_counts_what_was_looked_at(found) -> None:
    exhibits, _, told = found
    assert told["records"] == sum(not row["is_control"] for row in exhibits.rows)
    assert told["markers"] == sum(bool(row["is_control"]) for row in exhibits.rows)
    assert set(told["violations"]) == set(ANOMALIES)
    assert told["committed"] > 100
    assert told["aborted"] > 100

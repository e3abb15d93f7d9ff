"""Test that the audit finds nothing in valid logs, and each planted anomaly by its name."""

import random

import pytest
from pyspark.sql import functions as F

from oncelog.proof.audit.audit import ANOMALIES, Summary, audit, summary
from oncelog.proof.audit.neighbours import with_neighbours

from ..judge.edit import Edit, NoPlace
from ..judge.model_cluster import ModelCluster
from ..judge.mutations import mutated
from .audited_logs import AuditedLogs, lightly
from .log_mutations import BROUGHT_ALONG, MUTATIONS
from .model_log import EDGES, ModelLog

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


def plant_rows(audited: AuditedLogs, name: str, wanted: int) -> None:
    done, seed = 0, 0
    while done < wanted:
        seed += 1
        assert seed < 200, f"no place for {name}"
        replicas = 3 if name == "replica-divergence" else 0
        number = 10_000 + len(audited.planted)
        log_model = ModelLog(number, f"{name}-{seed}", edge_of(name, seed), replicas=replicas)
        try:
            spot = MUTATIONS[name](log_model)
        except NoPlace:
            continue
        audited.add_log(log_model, name, spot)
        done += 1


def compacted_since(seed: int) -> ModelLog:
    """Return a log that was compacted again after its reader had read it."""
    log_model = ModelLog(seed, f"clean-{seed}-since", "compacted")
    gone = [row for row in log_model.rows if not row.is_control and row.outcome != "aborted"][::3]
    log_model.rows = [row for row in log_model.rows if row not in gone]
    assert len(gone) > 3
    return log_model


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.spark_slow)])
def each(request) -> int:
    """Return the number of logs in which each anomaly is planted."""
    return request.param


@pytest.fixture(scope="module")
def found(spark, each, tmp_path_factory) -> tuple[AuditedLogs, dict[str, set[Spotted]], Summary]:
    """Return the audited logs, the anomalies found by topic, and the audit's summary."""
    audited = AuditedLogs()
    for number in range(15):
        edge = EDGES[number % len(EDGES)]
        audited.add_log(ModelLog(number, f"clean-{number}-{edge}", edge, replicas=number % 3))
    audited.add_log(compacted_since(100))
    for number in range(2):
        edit = Edit(ModelCluster(number, steps=500).recorder, random.Random(number))
        audited.add_history(edit, f"clean-history-{number}", "")
    for name in MUTATIONS:
        plant_rows(audited, name, each)
    for name in OF_HISTORIES:
        for seed, edit in mutated(name, 1, steps=500, first_seed=1):
            audited.add_history(edit, f"history-{name}-{seed}", name)
    spotted: dict[str, set[Spotted]] = {}
    with lightly(spark):
        audit_input = audited.audit_input(spark, tmp_path_factory.mktemp("rows"))
        result = audit(audit_input, chunk_size=16)
        for row in result.violations.collect():
            assert row["sentence"]
            one = (row["anomaly"], row["partition"], row["offset"])
            spotted.setdefault(row["topic"].partition("|")[0], set()).add(one)
        counts = summary(result)
        result.close()
    return audited, spotted, counts


def names(spotted: set[Spotted]) -> set[str]:
    return {anomaly for anomaly, _, _ in spotted}


@pytest.mark.in_turn
def test_audit_rules_report_nothing_in_clean_logs(found) -> None:
    audited, spotted, _ = found
    clean = [topic for topic, planted in audited.planted.items() if not planted]
    assert len(clean) == 18
    assert {topic: spotted[topic] for topic in clean if topic in spotted} == {}


def test_audit_rule_of_each_anomaly_has_a_planted_case() -> None:
    assert set(MUTATIONS) == set(ANOMALIES)


@pytest.mark.parametrize("name", ANOMALIES)
def test_audit_rules_report_each_planted_violation_and_at_most_its_known_side_effects(
    found, each: int, name: str
) -> None:
    audited, spotted, _ = found
    planted = [topic for topic, what in audited.planted.items() if what == name]
    assert len(planted) >= each
    seen = {topic: names(spotted.get(topic, set())) for topic in planted}
    may_be = {name} | BROUGHT_ALONG.get(name, set())
    assert {t: found for t, found in seen.items() if name not in found or not found <= may_be} == {}


def test_audit_rules_report_each_violation_at_its_planted_offset(found, each: int) -> None:
    audited, spotted, _ = found
    assert len(audited.spots) >= each * 8
    wanted = {topic: (audited.planted[topic], *spot) for topic, spot in audited.spots.items()}
    assert {t: (w, spotted.get(t)) for t, w in wanted.items() if w not in spotted.get(t, ())} == {}


@pytest.mark.parametrize("chunk_size", [1, 5, 1_000])
def test_audit_columns_from_earlier_and_later_rows_are_equal_for_every_chunk_size(
    spark, chunk_size
):
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


def test_audit_summary_counts_all_rows(found) -> None:
    audited, _, counts = found
    assert counts.records == sum(not row["is_control"] for row in audited.rows)
    assert counts.markers == sum(bool(row["is_control"]) for row in audited.rows)
    assert set(counts.violations) == set(ANOMALIES)
    assert counts.committed > 100
    assert counts.aborted > 100

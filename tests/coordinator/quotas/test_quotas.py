"""Test which quota applies to a client, and the throttle times of Kafka's formula."""

import math
from itertools import product

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.metadata.cluster_snapshot import (
    WITH_ADDRESS_QUOTAS_VERSION,
    WITH_QUOTAS_VERSION,
    UnreadableSnapshot,
)
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import AlterClientQuotas
from oncelog.coordinator.metadata.rules import quotas as rules
from oncelog.coordinator.quotas.quota_table import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaChange,
    QuotaEntity,
    QuotaTable,
    check_quota,
)
from oncelog.coordinator.quotas.rate import THROTTLE_MS_MAX, QuotaRate
from oncelog.wire.errors import ErrorCode, InvalidRequest

from ..metadata.metadata_cluster import MetadataCluster

MOST_SPECIFIC_FIRST = [
    ("u", "c"), ("u", DEFAULT), ("u", None), (DEFAULT, "c"), (DEFAULT, DEFAULT), (DEFAULT, None),
    (None, "c"), (None, DEFAULT),
]  # fmt: skip


def rate() -> QuotaRate:
    return QuotaRate(samples=11, window_ms=1_000)


@pytest.mark.parametrize("limit", [5e-324, 1e-308])
def test_quota_close_to_zero_throttles_for_at_most_the_maximum_time(limit: float) -> None:
    assert rate().record(1e6, limit, 0) == THROTTLE_MS_MAX


def test_quota_that_is_most_specific_applies_and_is_shared_by_its_clients():
    table = QuotaTable()
    for number, (user, client_id) in reversed(list(enumerate(MOST_SPECIFIC_FIRST))):
        table.put(QuotaEntity(user, client_id), PRODUCER_BYTE_RATE, float(number + 1))
        found = table.limit(PRODUCER_BYTE_RATE, "u", "c")
        assert found is not None and found.rate == number + 1
        shared_by = None if user is None else "u", None if client_id is None else "c"
        assert found.shared_by == QuotaEntity(*shared_by)
    assert table.limit(CONSUMER_BYTE_RATE, "u", "c") is None


def test_quota_for_another_key_does_not_hide_a_less_specific_quota():
    table = QuotaTable()
    table.put(QuotaEntity("u", "c"), CONSUMER_BYTE_RATE, 7.0)
    table.put(QuotaEntity("u", None), PRODUCER_BYTE_RATE, 9.0)
    found = table.limit(PRODUCER_BYTE_RATE, "u", "c")
    assert found is not None and found.rate == 9.0


def test_quota_table_reports_whether_any_entity_has_a_key():
    table = QuotaTable()
    entity = QuotaEntity("u", None)
    assert not table.put(entity, PRODUCER_BYTE_RATE, None)
    assert table.put(entity, PRODUCER_BYTE_RATE, 5.0)
    assert not table.put(entity, PRODUCER_BYTE_RATE, 5.0)
    assert table.has(PRODUCER_BYTE_RATE) and not table.has(CONSUMER_BYTE_RATE)
    assert table.put(entity, PRODUCER_BYTE_RATE, 6.0)
    assert table.put(entity, PRODUCER_BYTE_RATE, None)
    assert not table.has(PRODUCER_BYTE_RATE) and not len(table)


@pytest.mark.parametrize(
    ("records", "throttle_ms"),
    [
        ([(0, 10_000)], 0),  # all that ten windows allow
        ([(0, 10_001)], 1),
        ([(0, 20_000)], 10_000),
        ([(0, 20_000), (10_000, 0)], 10_000),  # as Kafka: still measured over ten windows
        ([(0, 5_000), (500, 15_000)], 9_500),  # 20 kB within 10.5 s
        ([(0, 20_000), (11_000, 1_000)], 0),  # the old sample is over
        ([(0, 20_000), (5_000, 0)], 10_000),  # as Kafka: less than ten windows count as ten
    ],
)
def test_quota_throttle_time_equals_the_formula_of_kafka(
    records: list[tuple[int, int]], throttle_ms: int
):
    client, found = rate(), 0
    for now_ms, value in records:
        found = client.record(value, 1_000, now_ms)
    assert found == throttle_ms


def test_client_that_pauses_for_its_throttle_time_sends_at_its_quota():
    client, now_ms, sent = rate(), 0, 0
    while now_ms < 200_000:
        throttle_ms = client.record(1_500, 1_000, now_ms)
        sent += 1_500
        now_ms += throttle_ms + 20
    assert math.isclose(sent / (now_ms / 1000), 1_000, rel_tol=0.1)


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 50_000)), min_size=1, max_size=30),
    st.integers(100, 10_000),
)
def test_client_that_pauses_for_all_windows_starts_without_throttling(
    records: list[tuple[int, int]], limit: int
):
    client, now_ms = rate(), 0
    for pause_ms, value in records:
        now_ms += pause_ms
        assert client.record(value, limit, now_ms) >= 0
    assert client.record(limit, limit, now_ms + 11_000) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("controller_mutation_rate", 1.0), (REQUEST_PERCENTAGE, 0.0), ("x", 1.0),
     (PRODUCER_BYTE_RATE, 0.0), (PRODUCER_BYTE_RATE, -1.0),
     (PRODUCER_BYTE_RATE, 1.5), (PRODUCER_BYTE_RATE, 1e19), (PRODUCER_BYTE_RATE, math.nan)],
)  # fmt: skip
def test_quota_with_an_invalid_key_or_value_is_refused(key: str, value: float):
    with pytest.raises(InvalidRequest):
        check_quota(key, value)


def test_quota_percentage_may_be_a_fraction():
    check_quota(REQUEST_PERCENTAGE, 0.25)


def test_quotas_are_kept_in_the_metadata_and_its_snapshots():
    cluster = MetadataCluster()
    without = cluster.state.snapshot()
    changes = tuple(
        QuotaChange(user, client_id, ((PRODUCER_BYTE_RATE, 5.0), (CONSUMER_BYTE_RATE, 7.0)))
        for user, client_id in product(("u", DEFAULT, None), ("c", DEFAULT))
    )
    cluster.do(AlterClientQuotas(changes))
    state = ClusterState()
    state.restore(cluster.state.snapshot())
    assert list(state.quotas.items()) == list(cluster.state.quotas.items())
    assert state.quotas.has(PRODUCER_BYTE_RATE)
    gone = tuple(
        QuotaChange(each.user, each.client_id, tuple((key, None) for key, _ in each.values))
        for each in changes
    )
    cluster.do(AlterClientQuotas(gone))
    assert len(cluster.state.snapshot()) == len(without)


def test_quota_of_an_address_hides_the_default_of_addresses():
    table = QuotaTable()
    assert table.connection_rate("10.0.0.1") is None
    table.put(QuotaEntity(None, None, DEFAULT), CONNECTION_CREATION_RATE, 9.0)
    table.put(QuotaEntity(None, None, "10.0.0.1"), CONNECTION_CREATION_RATE, 2.0)
    assert (table.connection_rate("10.0.0.1"), table.connection_rate("10.0.0.2")) == (2.0, 9.0)
    assert table.limit(CONNECTION_CREATION_RATE, "u", "c") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(PRODUCER_BYTE_RATE, 1.0), (CONNECTION_CREATION_RATE, 0.0), (CONNECTION_CREATION_RATE, 0.5),
     (CONNECTION_CREATION_RATE, 2.0**31)],
)  # fmt: skip
def test_quota_of_an_address_with_an_invalid_key_or_value_is_refused(key: str, value: float):
    with pytest.raises(InvalidRequest):
        check_quota(key, value, of_address=True)
    check_quota(CONNECTION_CREATION_RATE, 2.0**31 - 1, of_address=True)


def test_quotas_of_addresses_are_kept_in_snapshots_beside_those_of_users():
    cluster = MetadataCluster()
    values = ((CONNECTION_CREATION_RATE, 5.0),)
    changes = (
        QuotaChange("u", None, ((PRODUCER_BYTE_RATE, 5.0),)),
        *(QuotaChange(None, None, values, ip) for ip in ("10.0.0.1", DEFAULT)),
    )
    cluster.do(AlterClientQuotas(changes))
    state = ClusterState()
    state.restore(cluster.state.snapshot())
    assert dict(state.quotas.items()) == {each.entity: dict(each.values) for each in changes}
    assert state.quotas.has(CONNECTION_CREATION_RATE)
    assert state.snapshot() == cluster.state.snapshot()


def test_quotas_of_addresses_have_a_snapshot_version_of_their_own():
    """A node of an older release refuses this version of a snapshot with a clear message."""
    cluster = MetadataCluster()
    of_user = QuotaChange("u", None, ((PRODUCER_BYTE_RATE, 5.0),))
    cluster.do(AlterClientQuotas((of_user,)))
    version, *parts = msgpack.unpackb(cluster.state.snapshot())
    assert version == WITH_QUOTAS_VERSION
    assert parts[-1] == [["u", None, [[PRODUCER_BYTE_RATE, 5.0]]]]
    of_address = QuotaChange(None, None, ((CONNECTION_CREATION_RATE, 5.0),), "10.0.0.1")
    cluster.do(AlterClientQuotas((of_address,)))
    version, *parts = msgpack.unpackb(cluster.state.snapshot())
    assert version == WITH_ADDRESS_QUOTAS_VERSION == 10
    assert parts[13] == [["u", None, [[PRODUCER_BYTE_RATE, 5.0]]]]
    assert parts[-1] == [[None, None, [[CONNECTION_CREATION_RATE, 5.0]], "10.0.0.1"]]
    # development versions wrote the addresses beside the users
    mixed = [WITH_QUOTAS_VERSION, *parts[:13], parts[13] + parts[-1]]
    state, encoded = ClusterState(), msgpack.packb(mixed)
    assert encoded is not None
    state.restore(encoded)
    assert list(state.quotas.items()) == list(cluster.state.quotas.items())


def test_metadata_snapshot_of_a_later_version_is_refused_and_the_error_names_readable_versions():
    later = msgpack.packb([WITH_ADDRESS_QUOTAS_VERSION + 1])
    assert later is not None
    with pytest.raises(UnreadableSnapshot, match="has version 11; this release reads versions 1"):
        ClusterState().restore(later)


def test_quota_entities_beyond_the_maximum_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "QUOTAS_MAX", 1)
    cluster = MetadataCluster()
    values = ((PRODUCER_BYTE_RATE, 5.0),)
    changes = tuple(QuotaChange(user, None, values) for user in ("a", "b", "a"))
    items = cluster.do(AlterClientQuotas(changes)).items
    assert [item.error for item in items] == [0, ErrorCode.POLICY_VIOLATION, 0]

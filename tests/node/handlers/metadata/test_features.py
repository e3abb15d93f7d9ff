"""Test the feature levels in ApiVersions, and UpdateFeatures."""

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode, RequestTimedOut

from ...fake_broker import FakeBroker

API_VERSIONS, UPDATE, HEARTBEAT, DESCRIBE = 18, 57, 68, 69
UPGRADE, SAFE, UNSAFE = 1, 2, 3
SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def update(
    broker: FakeBroker, *rows: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> Any:
    names = ("feature", "max_version_level", "upgrade_type")
    updates = [dict(zip(names, row, strict=True)) for row in rows]
    values = {"feature_updates": updates, "timeout": 1_000, "validate_only": validate_only}
    return broker.ask(UPDATE, version, values)


def finalized(broker: FakeBroker) -> tuple[dict[str, int], int]:
    answer = broker.ask(API_VERSIONS, 4, SOFTWARE)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels, answer.finalized_features_epoch


@pytest.mark.parametrize("version", range(6))
def test_api_versions_shows_feature_levels_as_apache_kafka_does(
    broker: FakeBroker, version: int
) -> None:
    """Clients and tools read the levels to choose their requests.

    With transaction.version 2 a producer adds partitions by producing. Tools take the broker's
    version from metadata.version. Before ApiVersions v4 a client cannot read a feature whose range
    begins with 0 (KIP-890).
    """
    answer = broker.ask(API_VERSIONS, version, SOFTWARE)
    shown = {
        f.name: (f.min_version_level, f.max_version_level)
        for f in getattr(answer, "finalized_features", ())
    }
    known = {
        "eligible.leader.replicas.version": (1, 1),
        "group.version": (1, 1),
        "metadata.version": (33, 33),
        "transaction.version": (2, 2),
    }
    assert shown == (known if version >= 3 else {})
    supported = {
        f.name: (f.min_version, f.max_version) for f in getattr(answer, "supported_features", ())
    }
    expected = {"metadata.version": (7, 33)} if version >= 3 else {}
    from_zero = {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "transaction.version": (0, 2),
    }
    assert supported == expected | (from_zero if version >= 4 else {})
    if version >= 3:
        assert answer.finalized_features_epoch == 0


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "says"),
    [
        ("transaction.version", 2, UPGRADE, None),
        ("group.version", 1, UNSAFE, None),
        ("metadata.version", 33, UPGRADE, None),
        ("transaction.version", 0, SAFE, None),
        ("group.version", 0, UNSAFE, None),
        ("transaction.version", 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        ("transaction.version", 1, UPGRADE, "upgrade type to either safe or unsafe downgrade."),
        ("transaction.version", -1, SAFE, "A feature version cannot be less than 0."),
        ("transaction.version", 1, 0, "The controller does not support the given upgrade type."),
        ("metadata.version", 32, SAFE, "Level 33 holds for the life of this cluster."),
        ("kraft.version", 1, UPGRADE, None),
        ("kraft.version", 0, SAFE, None),
        ("kraft.version", 1, SAFE, "Can't downgrade to a newer version."),
        ("kraft.version", 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
        ("share.version", 1, UPGRADE, "Local controller 1 does not support this feature."),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_update_features_of_each_kind_is_decided_as_by_apache_kafka(
    broker: FakeBroker,
    feature: str,
    level: int,
    upgrade_type: int,
    says: str | None,
    validate_only: bool,
    version: int,
) -> None:
    before = finalized(broker)
    row = (feature, level, upgrade_type)
    answer = update(broker, row, version=version, validate_only=validate_only)
    if says is None:
        assert (answer.error_code, answer.error_message) == (0, None)
    else:
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.error_message.endswith(says)
    if version == 1:
        assert [each.feature for each in answer.results] == [feature] * (says is None)
    levels, epoch = finalized(broker)
    if says is None and not validate_only:
        assert levels.get(feature, 0) == level
        assert (epoch > before[1]) is (levels != before[0])
    else:
        assert (levels, epoch) == before


def test_update_features_with_one_invalid_update_changes_no_level(broker: FakeBroker) -> None:
    before = finalized(broker)
    answer = update(broker, ("transaction.version", 0, SAFE), ("group.version", 9, UPGRADE))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(broker) == before


def test_update_features_with_a_downgrade_type_does_not_raise_a_level(broker: FakeBroker) -> None:
    update(broker, ("transaction.version", 0, SAFE))
    answer = update(broker, ("transaction.version", 2, SAFE))
    assert answer.error_message.endswith("Can't downgrade to a newer version.")
    assert update(broker, ("transaction.version", 2, UPGRADE)).error_code == 0
    levels, epoch = finalized(broker)
    assert levels["transaction.version"] == 2
    assert epoch == broker.controller.index, "clients must take this for newer than level 0"


@pytest.mark.parametrize(("api", "verb"), [(80, "adding"), (81, "removing")])
def test_update_features_raises_kraft_version_for_good_and_voters_never_change(
    broker: FakeBroker, api: int, verb: str
) -> None:
    listener = {"name": "CONTROLLER", "host": "h", "port": 1}
    voter = {"cluster_id": None, "voter_id": 9, "voter_directory_id": bytes(16)}
    more = {"timeout": 1_000, "listeners": [listener]} if api == 80 else {}
    for level, reason in ((0, "the kraft.version feature is 0"), (1, "its voters never change")):
        answer = broker.ask(api, 0, voter | more)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert answer.error_message == f"Cluster doesn't support {verb} voter because {reason}"
        assert finalized(broker)[0].get("kraft.version", 0) == level
        assert update(broker, ("kraft.version", 1, UPGRADE)).error_code == 0
    for upgrade_type in (SAFE, UNSAFE):
        answer = update(broker, ("kraft.version", 0, upgrade_type))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.error_message.endswith("Can't downgrade the version of this feature.")
    assert finalized(broker)[0]["kraft.version"] == 1


def test_update_features_of_version_0_downgrades_with_its_own_field(broker: FakeBroker) -> None:
    row = {"feature": "group.version", "max_version_level": 0, "allow_downgrade": True}
    assert broker.ask(UPDATE, 0, {"feature_updates": [row], "timeout": 1_000}).error_code == 0
    assert "group.version" not in finalized(broker)[0]


def test_update_features_with_too_many_updates_is_refused(broker: FakeBroker) -> None:
    answer = update(broker, *[(f"f{number}", 1, UPGRADE) for number in range(101)])
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert not broker.controller.commands


def test_update_features_with_an_unknown_outcome_answers_the_error(broker: FakeBroker) -> None:
    broker.controller.failure = RequestTimedOut()
    answer = update(broker, ("group.version", 0, SAFE))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("by", ["the level", "the broker's key"])
def test_consumer_group_requests_with_group_version_0_or_only_the_classic_protocol_are_refused(
    by: str,
) -> None:
    if by == "the level":
        broker = FakeBroker()
        update(broker, ("group.version", 0, SAFE))
    else:
        broker = FakeBroker(group_coordinator_rebalance_protocols="classic")
    for values in (
        {"group_id": "g", "member_id": "m", "member_epoch": 0},
        {"group_id": "g", "member_id": "m", "member_epoch": 3, "rebalance_timeout": -1},
    ):
        assert broker.ask(HEARTBEAT, 1, values).error_code == ErrorCode.UNSUPPORTED_VERSION
    (group,) = broker.ask(DESCRIBE, 1, {"group_ids": ["g"]}).groups
    assert (group.group_id, group.error_code) == ("g", ErrorCode.UNSUPPORTED_VERSION)

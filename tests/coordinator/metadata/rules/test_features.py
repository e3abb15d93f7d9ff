"""Test the levels of features (such as transaction.version) in the metadata."""

from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import FeatureUpdate, UpdateFeatures
from oncelog.wire.features import GROUP_VERSION, SAFE_DOWNGRADE, TRANSACTION_VERSION

from ..metadata_cluster import MetadataCluster


def lowered(name: str, level: int, *, validate_only: bool = False) -> UpdateFeatures:
    return UpdateFeatures((FeatureUpdate(name, level, SAFE_DOWNGRADE),), 1, validate_only)


def test_feature_levels_are_kept_in_the_metadata_and_its_snapshots() -> None:
    cluster = MetadataCluster()
    heard: list[bool] = []
    cluster.state.on_change(lambda changes: heard.append(changes.others_changed))
    assert not cluster.do(lowered(TRANSACTION_VERSION, 0)).error
    assert not cluster.do(lowered(GROUP_VERSION, 0)).error
    assert heard == [True, True]
    restored = ClusterState()
    restored.restore(cluster.state.snapshot())
    for state in (cluster.state, restored):
        levels = [state.feature_level(name) for name in (TRANSACTION_VERSION, GROUP_VERSION)]
        assert (levels, state.features_epoch) == ([0, 0], cluster.index)
    assert restored.snapshot() == cluster.state.snapshot()


def test_feature_update_to_the_same_level_changes_no_metadata() -> None:
    cluster = MetadataCluster()
    before = cluster.state.snapshot()
    cluster.do(lowered(TRANSACTION_VERSION, 2))
    cluster.do(lowered(GROUP_VERSION, 0, validate_only=True))
    assert cluster.state.snapshot() == before


def test_feature_that_is_unknown_has_level_zero() -> None:
    assert ClusterState().feature_level("no.such.feature") == 0

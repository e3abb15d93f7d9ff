"""Test commands that create and delete ACLs in the metadata, and ACLs in snapshots."""

import pytest

from oncelog.coordinator.acls.bindings import AclBinding
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import CreateAcls, DeleteAcls
from oncelog.coordinator.metadata.results import Item
from oncelog.coordinator.metadata.rules import acls as rules
from oncelog.runtime.steps import run_to_end
from oncelog.wire.acls import AclOperation, AclPermission, PatternType, ResourceType
from oncelog.wire.errors import ErrorCode

from ..metadata_cluster import MetadataCluster


def acl(name: str, principal: str = "User:alice") -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        name,
        principal,
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )


A, B, C = acl("a"), acl("b"), acl("c")


def test_acls_created_and_deleted_are_applied_to_the_metadata():
    cluster = MetadataCluster()
    assert cluster.do(CreateAcls((A, B, A))).items == (Item(), Item(), Item())
    cluster.do(DeleteAcls((A, C)))
    assert list(cluster.state.acls) == [B]


def test_acl_listeners_are_called_only_for_effective_changes():
    cluster = MetadataCluster()
    heard: list[bool] = []
    cluster.state.on_change(lambda changes: heard.append(changes.others_changed))
    generation = cluster.state.acls.generation
    for command in (CreateAcls((A,)), CreateAcls((A,)), DeleteAcls((B,)), DeleteAcls((A,))):
        cluster.do(command)
    assert heard == [True, True]
    assert cluster.state.acls.generation is not generation


def test_acls_beyond_the_maximum_are_refused_and_existing_acls_accepted(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(rules, "ACLS_MAX", 2)
    cluster = MetadataCluster()
    items = cluster.do(CreateAcls((A, B, C, A))).items
    refused = ErrorCode.POLICY_VIOLATION
    assert [item.error for item in items] == [0, 0, refused, 0]
    assert list(cluster.state.acls) == [A, B]


def test_metadata_snapshot_stores_acls_and_has_the_older_format_if_there_are_none():
    cluster = MetadataCluster()
    without = cluster.state.snapshot()
    many = tuple(acl(f"t{number}") for number in range(200))
    cluster.do(CreateAcls((A, *many)))
    with_acls, state = cluster.state.snapshot(), ClusterState()
    state.restore(with_acls)
    assert list(state.acls) == [A, *many]
    assert state.snapshot() == with_acls
    cluster.do(DeleteAcls(tuple(state.acls)))
    assert len(cluster.state.snapshot()) == len(without)
    state.restore(without)
    assert list(state.acls) == []


def test_metadata_snapshot_of_many_acls_is_written_and_read_in_steps():
    state = ClusterState()
    for number in range(1_000):
        state.put_acl(acl(f"t{number}"))
    writing = state.snapshot_steps()
    assert sum(1 for _ in writing) >= 15
    snapshot = b"".join(run_to_end(state.snapshot_steps()))
    assert sum(1 for _ in state.restore_steps(snapshot)) >= 25  # reading, then freeing

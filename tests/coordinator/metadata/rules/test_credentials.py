"""Test commands that set and delete SCRAM credentials, and credentials in snapshots."""

from oncelog.coordinator.metadata.cluster_snapshot import decode_tables, encode_tables
from oncelog.coordinator.metadata.commands import AlterScramCredentials, decode_command
from oncelog.coordinator.metadata.commands import encode_command as encoded
from oncelog.coordinator.security.scram_changes import ScramChange
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import ErrorCode
from oncelog.wire.security.scram_server import ScramCredential

from ..metadata_cluster import MetadataCluster

FIRST, SECOND = (b"s1", b"stored", b"server", 4096), (b"s2", b"other", b"keys", 8192)


def altered(cluster: MetadataCluster, *changes: ScramChange) -> list[int]:
    command, _ = decode_command(encoded(AlterScramCredentials(changes)))
    return [item.error for item in cluster.do(command).items]


def test_scram_credentials_are_added_replaced_and_deleted_by_mechanism() -> None:
    cluster = MetadataCluster(())
    found = cluster.state.scram_credentials
    assert altered(cluster, ScramChange("a", 1, *FIRST), ScramChange("a", 2, *FIRST)) == [0, 0]
    assert altered(cluster, ScramChange("a", 1, *SECOND)) == [0]
    assert found == {"a": {1: ScramCredential(*SECOND), 2: ScramCredential(*FIRST)}}
    missing = ErrorCode.RESOURCE_NOT_FOUND
    assert altered(cluster, ScramChange("a", 1), ScramChange("b", 1)) == [0, missing]
    assert found == {"a": {2: ScramCredential(*FIRST)}}
    assert altered(cluster, ScramChange("a", 1), ScramChange("a", 2)) == [missing, missing]
    assert found == {"a": {2: ScramCredential(*FIRST)}}
    assert altered(cluster, ScramChange("a", 2)) == [0]
    assert found == {}


def test_scram_credentials_are_restored_from_a_metadata_snapshot() -> None:
    cluster = MetadataCluster(())
    altered(cluster, ScramChange("b", 2, *FIRST), ScramChange("a", 1, *SECOND))
    pieces = run_to_end(encode_tables(cluster.state, {}))
    tables, _ = run_to_end(decode_tables(b"".join(pieces)))
    assert tables.scram_credentials == cluster.state.scram_credentials


def test_scram_change_as_text_contains_no_key() -> None:
    shown = repr(ScramChange("a", 1, *FIRST))
    assert "stored" not in shown and "server" not in shown and "'a'" in shown

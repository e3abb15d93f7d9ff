"""Test that checkpoint files have Kafka's format, are replaced atomically, and detect damage."""

from contextlib import suppress
from pathlib import Path

import pytest

from oncelog.storage.checkpoint import (
    CorruptCheckpoint,
    LeaderEpochCheckpoint,
    MetaProperties,
    OffsetCheckpoint,
    PartitionMetadata,
    decode_uuid,
    write_atomically,
)

UUID = bytes(range(16))


class Crash(Exception):
    pass


STEPS = ["before-write", "before-fsync", "after-fsync", "before-rename", "after-rename"]


@pytest.mark.parametrize("step", [*STEPS, "after-directory-fsync"])
def test_checkpoint_write_interrupted_by_a_crash_leaves_the_old_or_the_new_content(tmp_path, step):
    path = tmp_path / "checkpoint"
    write_atomically(path, b"old")
    passed = []

    def fault_point(name):
        passed.append(name)
        if name == f"checkpoint.{step}":
            raise Crash

    with pytest.raises(Crash):
        write_atomically(path, b"new", fault_point=fault_point)
    assert path.read_bytes() == (b"new" if step.startswith("after-r") or "dir" in step else b"old")
    write_atomically(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_offset_checkpoint_text_is_that_of_kafka_with_a_checksum(tmp_path):
    checkpoint = OffsetCheckpoint(tmp_path / "replication-offset-checkpoint")
    assert checkpoint.read() == {}
    offsets = {("flights", 0): 17, ("a.b-c_d", 12): 2**62}
    checkpoint.write(offsets)
    text = checkpoint.path.read_text()
    assert text.startswith(f"0\n3\nflights 0 17\na.b-c_d 12 {2**62}\ncrc32c: 0 ")
    assert checkpoint.read() == offsets
    checkpoint.path.write_text(f"0\n2\nflights 0 17\na.b-c_d 12 {2**62}\n")
    assert checkpoint.read() == offsets, "as older releases wrote it"


@pytest.mark.parametrize("bit", range(8))
def test_offset_checkpoint_with_a_flipped_bit_reads_the_written_offsets_or_raises(tmp_path, bit):
    checkpoint = OffsetCheckpoint(tmp_path / "log-start-offset-checkpoint")
    offsets = {("flights", 0): 17, ("a", 12): 4}
    checkpoint.write(offsets)
    content = checkpoint.path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        checkpoint.path.write_bytes(damaged)
        with suppress(CorruptCheckpoint):
            found = checkpoint.read()
            assert {key: found.get(key) for key in offsets} == offsets, f"byte {at}"


@pytest.mark.parametrize("bit", range(8))
def test_partition_metadata_with_a_flipped_bit_reads_the_written_id_or_raises(tmp_path, bit):
    PartitionMetadata(UUID).write(tmp_path)
    path = tmp_path / "partition.metadata"
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        with suppress(CorruptCheckpoint):
            assert PartitionMetadata.read(tmp_path) == PartitionMetadata(UUID), f"byte {at}"


def test_leader_epoch_checkpoint_text_equals_that_of_kafka(tmp_path):
    checkpoint = LeaderEpochCheckpoint(tmp_path)
    assert checkpoint.read() == []
    from oncelog.storage.leader_epochs import EpochStart

    checkpoint.write([EpochStart(0, 0), EpochStart(3, 25)])
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 25\n"
    assert checkpoint.read() == [(0, 0), (3, 25)]


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",  # a future version
        "7",
        "0\n2\na 0 1\n",  # fewer than announced
        "0\n0\na 0 1\n",
        "0\nx\n",
        "0\n1\na 0\n",
        "0\n1\na b 1\n",
        "0\n1\na 0 1 2\n",
        "0\n1\na -1 1\n",
        b"0\n1\n\xff\xff 0 1\n",
    ],
)
def test_offset_checkpoint_that_is_malformed_raises_an_error_with_the_file_name(
    tmp_path: Path, text
):
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CorruptCheckpoint, match=r"recovery-point.*Delete it"):
        OffsetCheckpoint(path).read()


@pytest.mark.parametrize("text", ["0\n1\n1 2 3\n", "0\n1\nx 2\n", "0\n1\n1 -2\n"])
def test_leader_epoch_checkpoint_that_is_malformed_raises_corrupt_checkpoint(tmp_path, text):
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    with pytest.raises(CorruptCheckpoint, match="batches bear their epochs"):
        LeaderEpochCheckpoint(tmp_path).read()


def test_offset_checkpoint_of_an_empty_file_has_no_entries(tmp_path):
    (tmp_path / "x").write_text("")
    assert OffsetCheckpoint(tmp_path / "x").read() == {}


def test_meta_properties_equal_the_kafka_file_plus_the_boot_id(tmp_path):
    assert MetaProperties.read(tmp_path) is None
    properties = MetaProperties(
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=3, directory_id=UUID, boot_id="a-b:c"
    )
    properties.write(tmp_path)
    text = (tmp_path / "meta.properties").read_text()
    assert "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=3\n" in text
    assert "directory.id=AAECAwQFBgcICQoLDA0ODw\n" in text
    assert MetaProperties.read(tmp_path) == properties


def test_meta_properties_written_by_kafka_are_read(tmp_path):
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 07:01:13 UTC 2026\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
        "directory.id=AAECAwQFBgcICQoLDA0ODw\nnode.id=3\nversion=1\n"
    )
    assert MetaProperties.read(tmp_path) == MetaProperties(
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=3, directory_id=UUID
    )


@pytest.mark.parametrize(
    "text",
    [
        "version=0\nbroker.id=1\n",
        "version=1\nnode.id=1\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n",
        "version=1\ncluster.id=x\nnode.id=one\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n",
        "version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short\n",
        "",
    ],
)
def test_meta_properties_that_are_malformed_raise_an_error_with_the_file_name(tmp_path, text):
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(CorruptCheckpoint, match=r"meta\.properties.*backup"):
        MetaProperties.read(tmp_path)


def test_partition_metadata_text_is_that_of_kafka_with_a_checksum(tmp_path):
    assert PartitionMetadata.read(tmp_path) is None
    PartitionMetadata(UUID).write(tmp_path)
    text = (tmp_path / "partition.metadata").read_text()
    kafkas = "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert text.startswith(kafkas + "\ncrc32c: ")
    assert PartitionMetadata.read(tmp_path) == PartitionMetadata(UUID)
    (tmp_path / "partition.metadata").write_text(kafkas)
    assert PartitionMetadata.read(tmp_path) == PartitionMetadata(UUID)


@pytest.mark.parametrize("text", ["", "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "version: 0"])
def test_partition_metadata_that_is_malformed_raises_an_error_with_the_file_name(tmp_path, text):
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CorruptCheckpoint, match=r"partition\.metadata"):
        PartitionMetadata.read(tmp_path)


@pytest.mark.parametrize("text", ["", "AAECAwQFBgcICQoLDA0O", "!" * 22])
def test_uuid_of_a_malformed_text_is_refused(text):
    with pytest.raises(ValueError):
        decode_uuid(text)

"""Test that a cluster's directory is private, and another user's directory is refused."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from oncelog.deploy.cluster import layout
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.private import make_private_directory, write_private
from oncelog.storage.directory.lock import DirectoryOfAnother, close_to_others, take_lock

SOMEBODY_ELSE = 4_000_000_000


def open_to_others(directory: Path) -> list[str]:
    """Return the paths that `find DIRECTORY -perm /077 ! -type l` would print."""
    found = [directory, *directory.rglob("*")]
    return [str(path) for path in found if not path.is_symlink() and path.lstat().st_mode & 0o077]


def owned_by(monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    """Report `user` as the owner of each file, and another user as that of this process."""
    found = Path.stat

    def stat_of_that(path: Path, **options: Any) -> os.stat_result:
        values = list(found(path, **options))
        values[4] = user
        return os.stat_result(values)

    monkeypatch.setattr(Path, "stat", stat_of_that)
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY_ELSE)


@pytest.fixture
def of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test as a user that owns none of the files."""
    owned_by(monkeypatch, 1234)


@pytest.mark.cluster
def test_cluster_directory_has_no_file_readable_by_other_users(tmp_path: Path) -> None:
    data, before = tmp_path / "data", os.umask(0o022)
    try:
        with Cluster(1, data=data, config={"log.roll.ms": "50"}) as cluster:
            cluster.ask(lambda admin: admin.create_topic("t", partitions=2, replication_factor=1))
            use(cluster)
            assert open_to_others(data) == []
            cluster.restart(1)
            use(cluster)
            cluster.down()
            assert len(list(data.glob("node-1/t-*/*.log"))) > 2
            assert list(data.glob("node-1/*/*.snapshot"))
            assert open_to_others(data) == []
    finally:
        os.umask(before)


def use(cluster: Cluster) -> None:
    """Write records in a transaction, and read them with a consumer group that commits."""
    producer = Producer(cluster.client_config(**{"transactional.id": "t", "log_level": 0}))
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(300):
        producer.produce("t", b"x" * 1000, key=str(number))
    producer.commit_transaction(30)
    consumer = Consumer(cluster.client_config(**{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["t"])
    assert consumer.consume(100, 30)
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.cluster
def test_cluster_directory_of_an_older_release_is_made_private_at_its_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with Cluster(1, data=data) as cluster:
        cluster.down()
        for directory in (data, data / "node-1"):
            directory.chmod(0o755)
        cluster.up()
        assert stat.S_IMODE(data.stat().st_mode) == stat.S_IMODE((data / "node-1").stat().st_mode)
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert "Other users had access to" in capsys.readouterr().err
        assert "Other users had access to" in cluster.node(1).log.read_text()


def test_directory_without_a_cluster_keeps_its_mode(tmp_path: Path) -> None:
    """`oncelog up --data /tmp` as root is refused and leaves /tmp open to other users."""
    tmp_path.chmod(0o777)
    (tmp_path / "of-others").touch()
    with pytest.raises(Failure, match="not empty"):
        Cluster(1, data=tmp_path).up()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o777


def test_lock_file_that_is_a_symbolic_link_is_refused_and_its_target_kept(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/.lock").symlink_to(precious)
    with pytest.raises(Failure, match="it is a link"), layout.locked(tmp_path / "data"):
        pass
    with pytest.raises(DirectoryOfAnother, match="is a link"):
        take_lock(tmp_path / "data")
    assert precious.read_text() == "kept"


@pytest.mark.usefixtures("of_another")
def test_cluster_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="belongs to user"), layout.locked(tmp_path):
        pass
    with pytest.raises(Failure, match="belongs to user"):
        make_private_directory(tmp_path)
    with pytest.raises(DirectoryOfAnother, match="belongs to user"):
        take_lock(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_cluster_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file names the processes that `down` ends and the directory that it removes."""
    with layout.locked(tmp_path):
        layout.write(tmp_path, layout.ClusterFile("id", "/tmp/oncelog-x", "local", []))
    owned_by(monkeypatch, 1234)
    with pytest.raises(Failure, match="belongs to user"):
        layout.existing(tmp_path)


def test_cluster_directory_owned_by_root_and_group_writable_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may mount a volume that belongs to root and has a fixed mode."""

    def refuse(*_: Any) -> None:
        raise PermissionError

    tmp_path.chmod(0o770)
    owned_by(monkeypatch, 0)
    monkeypatch.setattr(Path, "chmod", refuse)
    make_private_directory(tmp_path)
    assert not close_to_others(tmp_path)
    os.close(take_lock(tmp_path))


def test_private_file_that_is_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("kept")
    (tmp_path / "here").symlink_to(tmp_path / "there")
    with pytest.raises(OSError, match="here"):
        write_private(tmp_path / "here", "lost")
    assert (tmp_path / "there").read_text() == "kept"

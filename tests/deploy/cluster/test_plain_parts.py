"""Test plans, fault targets, properties, ports and tables, without a running cluster."""

import errno
import json
import os
import socket
import stat
from pathlib import Path

import pytest

from oncelog.cli import main
from oncelog.deploy.cluster import layout, ports, properties, targets
from oncelog.deploy.cluster.failure import Failure, told_by_system
from oncelog.deploy.cluster.layout import ClusterFile, NodeEntry
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.plan import ClusterPlan
from oncelog.node.cluster_id import new_cluster_id
from oncelog.node.config.broker_config import BROKER_KEYS
from oncelog.node.config.keys import parse_properties

TWO_PHASE = "transaction.two.phase.commit.enable"


def test_fault_target_is_parsed_as_a_node_number_or_role():
    assert targets.parse("2") == ("node", "", 2)
    assert targets.parse("leader:my.topic-1/12") == ("leader", "my.topic-1", 12)
    assert targets.parse("txn:etl:7") == ("txn", "etl:7", -1)
    assert targets.parse("group:my group") == ("group", "my group", -1)
    assert targets.parse("controller") == ("controller", "", -1)
    assert targets.parse("random") == ("random", "", -1)


@pytest.mark.parametrize("text", ["", "banana", "leader:", "leader:t", "leader:t/x", "txn:", "-1"])
def test_fault_target_of_a_wrong_form_is_refused_with_a_sentence(text):
    with pytest.raises(Failure, match=r"is no target\. A target is|names no partition\. Write"):
        targets.parse(text)


def test_broker_properties_rendered_to_text_are_parsed_back_equal():
    values = {"log.dirs": "/a b/c", "x.y": "back\\slash", "z": ""}
    assert parse_properties(properties.render(values)) == values
    with pytest.raises(ValueError, match="lines"):
        properties.render({"a": "b\nc=d"})


def test_broker_settings_given_by_the_user_override_the_profile():
    plan = ClusterPlan(nodes=3, overrides={"replica.lag.time.max.ms": "9"}, transaction_shards=2)
    assert plan.settings["replica.lag.time.max.ms"] == "9"
    assert plan.settings["transaction.state.log.num.partitions"] == "2"
    assert plan.settings["min.insync.replicas"] == "2"
    assert ClusterPlan(nodes=1).settings["min.insync.replicas"] == "1"


def test_kafka_profile_has_kafkas_defaults_of_the_keys_of_the_local_profile():
    local, kafka = properties.PROFILES["local"], properties.PROFILES["kafka"]
    assert kafka == {name: BROKER_KEYS[name].kafka_default for name in local}
    assert local == {name: BROKER_KEYS[name].default for name in local}


@pytest.mark.parametrize("profile", ["local", "kafka"])
@pytest.mark.parametrize(("given", "written"), [({}, "true"), ({TWO_PHASE: "false"}, "false")])
def test_broker_properties_enable_two_phase_commit_unless_the_user_sets_it(
    profile: str, given: dict[str, str], written: str
) -> None:
    """The setting is not in cluster.json, so an older cluster gets it at its next start."""
    file = ClusterPlan(nodes=1, profile=profile, overrides=given).new_file()
    assert file.settings.get(TWO_PHASE) == given.get(TWO_PHASE)
    assert properties.node_properties(file.nodes[0], file, Path("/d"))[TWO_PHASE] == written


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 2}, "majority"),
        ({"nodes": 6}, "1, 3, 4 or 5"),
        ({"nodes": 3, "profile": "big"}, "profile"),
        ({"nodes": 3, "replication_factor": 4}, "4 replicas"),
        ({"nodes": 3, "replication_factor": 2, "min_insync_replicas": 3}, "never be met"),
    ],
)
def test_cluster_plan_with_impossible_options_is_refused(options, words):
    with pytest.raises(Failure, match=words):
        ClusterPlan(**options)


def test_cluster_directory_that_is_a_file_or_has_foreign_files_is_refused(tmp_path):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(Failure, match="not empty"):
        layout.require_usable(tmp_path)
    with pytest.raises(Failure, match="is a file"), layout.locked(tmp_path / "precious.txt"):
        pass


def make_file(port: int = 1000) -> ClusterFile:
    nodes = [NodeEntry(i, "127.0.0.1", port + i) for i in (1, 2, 3)]
    return ClusterFile("AAAA", "/tmp/oncelog-x", "local", nodes, {"a": "b"})


def test_cluster_file_is_read_back_as_written(tmp_path):
    assert layout.read(tmp_path) is None
    layout.write(tmp_path, make_file())
    assert layout.read(tmp_path) == make_file()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1, "odd": 2}'])
def test_cluster_file_of_a_foreign_format_is_refused(tmp_path, text):
    (tmp_path / layout.CLUSTER_FILE).write_text(text)
    with pytest.raises(Failure, match=r"cluster\.json"):
        layout.read(tmp_path)


def test_node_directory_of_another_cluster_is_refused(tmp_path):
    (tmp_path / "node-2").mkdir()
    (tmp_path / "node-2" / "meta.properties").write_text("version=1\ncluster.id=BBBB\nnode.id=2\n")
    with pytest.raises(Failure, match="belongs to cluster BBBB"):
        layout.require_same_cluster(tmp_path, make_file())


def test_cluster_plan_for_a_running_or_differently_sized_cluster_is_refused(tmp_path):
    with pytest.raises(Failure, match="runs in"):
        known = make_file()
        known.is_complete = True
        ClusterPlan(nodes=3).reused_file(tmp_path, known, [1, 3])
    with pytest.raises(Failure, match="half started"):
        ClusterPlan(nodes=3).reused_file(tmp_path, make_file(), [1])
    with pytest.raises(Failure, match="holds a cluster of 3"):
        ClusterPlan(nodes=5).reused_file(tmp_path, make_file(), [])
    again = ClusterPlan(nodes=3, overrides={"c": "d"}).reused_file(tmp_path, make_file(), [])
    assert again.settings == {"a": "b", "c": "d"}


def test_cluster_directory_locked_by_one_command_refuses_another(tmp_path):
    with (
        layout.locked(tmp_path),
        pytest.raises(Failure, match="Another oncelog"),
        layout.locked(tmp_path),
    ):
        pass
    with layout.locked(tmp_path):
        pass


def test_peer_socket_directory_is_short_and_private_to_its_owner(tmp_path):
    path = layout.peer_directory_for(new_cluster_id())
    assert len(os.fsencode(path)) + len(layout.LONGEST_SOCKET_NAME) <= layout.SOCKET_PATH_BYTES_MAX
    mine = tmp_path / "oncelog-test"
    layout.make_peer_directory(mine)
    layout.make_peer_directory(mine)
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    mine.chmod(0o755)
    with pytest.raises(Failure, match="0700"):
        layout.make_peer_directory(mine)
    other = tmp_path / "oncelog-link"
    other.symlink_to(mine)
    with pytest.raises(Failure, match="0700"):
        layout.make_peer_directory(other)


def test_port_in_use_is_reported_with_its_process():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        assert not ports.is_free(port)
        assert not ports.is_refused(port)
        with pytest.raises(Failure, match=rf"Port {port} is taken by .*pid {os.getpid()}"):
            ports.require_free([port])
    assert ports.is_refused(port)


def test_port_used_by_an_outgoing_connection_is_reported_as_used_by_that_connection():
    """No process listens at the port, so the report names no process to stop."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        port = client.getsockname()[1]
        with pytest.raises(Failure, match=rf"outgoing connection of .*pid {os.getpid()}"):
            ports.require_free([port])
        client.close()  # the side that closes first keeps the port
        accepted.close()
        with pytest.raises(Failure, match="connection that has ended"):
            ports.require_free([port])


@pytest.mark.parametrize("port", [0, -1, 65_536, 70_000])
def test_port_number_out_of_range_is_reported(port):
    with pytest.raises(Failure, match="not a port"):
        ports.require_free([port])


def test_table_cell_with_brackets_is_printed_unchanged(capsys):
    from oncelog.deploy.cluster.terminal import show

    show([{"advice": "pip install 'oncelog[bench]'", "pid": None}], "table")
    assert "oncelog[bench]" in capsys.readouterr().out


def test_chosen_ports_are_free_and_outside_the_outgoing_range():
    found = ports.free_ports(5)
    assert len(set(found)) == 5
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(ports.is_free(p) and p < first_outgoing for p in found)


def test_table_rows_are_printed_as_a_table_or_as_json(capsys):
    from oncelog.deploy.cluster.terminal import show

    rows = [{"a": 1, "b": [1, 2], "c": None}]
    show(rows, "json")
    assert json.loads(capsys.readouterr().out) == rows
    show(rows, "table", columns={"a": "A", "b": "B", "c": "C"})
    out = capsys.readouterr().out
    assert "1,2" in out
    assert "-" in out


@pytest.mark.parametrize("is_there", [False, True])
def test_cluster_plan_with_a_wrong_setting_is_refused_before_a_file_is_written(
    tmp_path, capsys, is_there
):
    data = tmp_path / "deep" / "data"
    if is_there:
        file = make_file()
        file.nodes = file.nodes[:1]
        data.mkdir(parents=True)
        layout.write(data, file)
    before = layout.read(data)
    assert main.run(["up", "--data", str(data), "-c", "foo=bar"]) == 2  # whatever is there
    told = capsys.readouterr().err
    assert "Unknown configuration foo. Nothing was started" in told and ".." not in told
    assert layout.read(data) == before
    assert (tmp_path / "deep").exists() == is_there


def test_up_command_with_a_port_in_use_leaves_no_directory(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(Failure, match="is taken"):
            Cluster(1, data=tmp_path / "new", port=port).up()
    assert not (tmp_path / "new").exists()


def test_port_reserved_for_root_is_refused_with_that_reason(monkeypatch):
    refusal = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(ports, "_refusal", lambda port: refusal)
    with pytest.raises(Failure, match="may not be used by this user"):
        ports.require_free([80])


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EROFS, "writable place"), (errno.EACCES, "as its owner"), (errno.ENOSPC, "Make room")],
)
def test_up_command_with_an_unwritable_directory_reports_it_in_one_sentence(
    tmp_path, monkeypatch, capsys, number, advice
):
    def refuse(path, *_, **__):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert main.run(["up", "--data", str(tmp_path / "new")]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'new'}: {os.strerror(number)}. " in line and advice in line


def test_up_command_on_a_full_disk_names_the_file_and_leaves_no_file(tmp_path, monkeypatch, capsys):
    def refuse(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    assert main.run(["up", "--data", str(tmp_path / "new")]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'new' / layout.CLUSTER_FILE}: No space left on device. " in line
    assert list(tmp_path.iterdir()) == []


def test_system_error_gets_advice_only_if_a_user_can_fix_it(tmp_path):
    missing = FileNotFoundError(errno.ENOENT, "", str(tmp_path))
    assert told_by_system(missing) == f"{tmp_path}: No such file or directory. Check the path."
    assert told_by_system(OSError(errno.EBADF, "")) is None


def test_doctor_reports_whether_the_data_directory_is_usable(tmp_path, monkeypatch):
    from oncelog.deploy.inspect.doctor import _directory

    assert _directory(tmp_path / "new").state == "ok"
    tmp_path.chmod(0o755)
    assert _directory(tmp_path).state == "note"
    (tmp_path / "file").touch()
    assert _directory(tmp_path / "file" / "x").state == "bad"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written" in _directory(tmp_path / "new").found

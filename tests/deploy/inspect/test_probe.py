"""Test that the probe measures a whole stall, and does not report a killed node as slow."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from oncelog import Cluster
from oncelog.cli.main import run
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.inspect.cluster_watch import ClusterWatch
from oncelog.deploy.inspect.probe import Probe, Target
from oncelog.deploy.inspect.probe_process import REQUEST

ANSWER = (6).to_bytes(4, "big") + bytes(6)


class ToyNode:
    """A node that answers each request at once, or as soon as the test allows answers again."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def drop(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        self.may_answer.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        rest = 0
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                count, rest = divmod(rest + len(data), len(REQUEST))
                self.may_answer.wait()
                connection.sendall(ANSWER * count)


@pytest.fixture
def toy() -> Iterator[ToyNode]:
    node = ToyNode()
    yield node
    node.close()


def target(toy: ToyNode) -> Target:
    return Target(1, "127.0.0.1", toy.port)


def test_probe_latency_is_measured_from_the_time_a_request_was_due(toy):
    with Probe([target(toy)]) as probe:
        toy.may_answer.clear()
        time.sleep(0.4)
        toy.may_answer.set()
        time.sleep(0.1)
        (node,) = probe.stop().nodes
    assert node.max_ms >= 380
    assert 380 <= node.stalls[0]["ms"] <= node.max_ms  # the next answer may be read later
    assert node.answers >= 80  # one each 5 ms, also during the silence
    assert node.p99_ms > 300


def test_probe_request_without_an_answer_is_measured_until_the_end(toy):
    with Probe([target(toy)]) as probe:
        toy.may_answer.clear()
        time.sleep(0.3)
        (node,) = probe.stop().nodes
    assert node.silent_ms >= 280
    assert node.max_ms == pytest.approx(node.silent_ms)


def test_probe_that_reconnects_resends_requests_with_their_due_times(toy):
    with Probe([target(toy)]) as probe:
        toy.may_answer.clear()
        time.sleep(0.2)
        toy.drop()
        toy.may_answer.set()
        time.sleep(1.2)
        (node,) = probe.stop().nodes
    assert node.lost_connections == 1
    assert node.max_ms >= 180
    assert node.silent_ms < 1_100, "the new connection is not used"


def test_probe_of_a_node_killed_on_purpose_reports_no_late_answers(toy):
    with Probe([target(toy)]) as probe:
        toy.may_answer.clear()
        probe.leave(1)
        time.sleep(1.2)
        toy.may_answer.set()
        probe.begin(1, 0)
        time.sleep(0.2)
        (node,) = probe.stop().nodes
    assert node.max_ms < 1_100
    assert node.answers > 10


def test_probe_without_a_reachable_node_raises():
    with pytest.raises(Failure, match="answered"), Probe([Target(1, "no.such.host.invalid", 1)]):
        pass


@pytest.mark.cluster
@pytest.mark.xdist_group("probe")
@pytest.mark.in_turn
def test_cluster_watch_reports_a_paused_node_and_its_fencing(tmp_path, capsys):
    with Cluster(3, data=tmp_path / "c") as cluster:
        ordinary = ["doctor", "--probe", "--seconds", "0.3", "--data", str(cluster.data)]
        run([*ordinary, "--format", "json"])
        rows = json.loads(capsys.readouterr().out)
        assert [row["node"] for row in rows] == [1, 2, 3]
        assert all(row["answers"] > 30 and row["rss_mb"] > 10 for row in rows)
        run([*ordinary[:-2], "--bootstrap", cluster.bootstrap])
        assert "MAX ms" in capsys.readouterr().out

        deaf = next(i for i in cluster.node_ids if i != cluster.controller())
        with ClusterWatch(cluster) as watch:
            cluster.pause(deaf)
            deadline = time.monotonic() + 20
            while not any(b.is_fenced for b in _brokers(cluster)) and time.monotonic() < deadline:
                time.sleep(0.05)
            cluster.resume(deaf)
            time.sleep(0.1)
            seen = watch.stop()
        assert seen.fences == {deaf: 1}
        assert {n.node: n.max_ms > 1000 for n in seen.probe.nodes}[deaf]

        with ClusterWatch(cluster) as watch:
            watch.kill(deaf)
            watch.start(deaf)
            seen = watch.stop()
        assert seen.fences == {}, "a killed node is fenced by right"


def _brokers(cluster: Cluster) -> tuple:
    return cluster.ask(lambda admin: admin.describe_cluster()).brokers

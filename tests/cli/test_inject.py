"""Test the options, the output and the exit codes of `oncelog inject`."""

import fcntl
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from oncelog.cli import main
from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.faults.protocol_proxy import proxy

TIMEOUT_S = 30
PIPE_BYTES, REQUESTS = 16_384, 400


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--api", "EndTxn"], "Say what to do, one of: --lose-answer"),
        (["--api", "EndTxn", "--lose-answer", "--delay", "3s"], "Say what to do, one of"),
        (["--api", "EndTransaction", "--lose-answer"], "There is no API EndTransaction"),
        (["--api", "EndTxn", "--error", "NO_IDEA"], "Kafka has no error NO_IDEA"),
        (["--api", "Metadata", "--error", "NOT_COORDINATOR"], "It can be made for AddOffsetsToTxn"),
        (["--api", "EndTxn", "--error", "NONE"], "NONE is no error"),
        (["--api", "EndTxn", "--delay", "3"], "'3' is no time: it looks like 3s"),
        (["--api", "EndTxn", "--delay", "20m"], "at most 600 s"),
        (["--api", "EndTxn", "--lose-answer", "--nth", "0"], "from the 1st time on"),
        (["--api", "EndTxn", "--lose-answer", "--times", "-1"], "--times is 1 or more"),
        (
            ["--api", "EndTxn", "--lose-answer", "--times", "0", "--exit-when-done"],
            "--times 0 means for ever",
        ),
        (["--api", "EndTxn", "--lose-answer", "--seconds", "0"], "--seconds has to be more than 0"),
    ],
)
def test_inject_with_contradicting_options_is_refused_with_a_reason(capsys, arguments, words):
    assert main.run(["inject", *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_inject_without_a_reachable_cluster_starts_no_proxy(capsys, monkeypatch):
    monkeypatch.setattr(proxy, "START_TIMEOUT_MS", 300)
    arguments = ["--api", "EndTxn", "--lose-answer", "--bootstrap", "127.0.0.1:1"]
    assert main.run(["inject", *arguments]) == 1
    assert "There is no proxy without its cluster" in capsys.readouterr().err


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with Cluster(1, data=tmp_path_factory.mktemp("cluster") / "data") as running:
        running.ask(lambda admin: admin.create_topic("orders", partitions=1, replication_factor=1))
        yield running


@contextmanager
def injecting(cluster: Cluster, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `oncelog inject` until the block ends, and yield its process and its proxy's address."""
    command = [sys.executable, "-m", "oncelog.cli", "inject", *arguments]
    process = subprocess.Popen(
        [*command, "--data", str(cluster.data)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"bootstrap\.servers=(127\.0\.0\.1:\d+)\n", process.stdout.readline())
        assert found, process.communicate()
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def commit_one(bootstrap: str) -> None:
    named = {"transactional.id": "it", "client.id": "app", "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **named})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"1")
    producer.commit_transaction(TIMEOUT_S)


@pytest.mark.cluster
def test_inject_with_exit_when_done_exits_after_its_fault(cluster):
    options = ["--api", "EndTxn", "--client-id", "app", "--lose-answer", "--exit-when-done"]
    with injecting(cluster, *options, "--seconds", "60") as (process, address):
        commit_one(address)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert "done; the proxy ends when its clients have disconnected" in err
    assert re.search(
        r"\d\d:\d\d:\d\d  EndTxn v\d of app: its answer was lost; the broker has executed it", out
    )


@pytest.mark.cluster
def test_inject_ended_by_ctrl_c_exits_zero_and_reports_a_refused_tls_client(cluster):
    options = ["--api", "EndTxn", "--client-id", "app", "--delay", "100ms", "--times", "0"]
    with injecting(cluster, *options) as (process, address):
        commit_one(address)
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as client:
            client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            assert client.recv(1) == b""
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert "its request came 0.1 s later" in out
    assert "the client uses TLS, but the proxy does not" in err


@pytest.mark.cluster
@pytest.mark.parametrize("ending", ["ctrl-c", "seconds"])
def test_inject_with_an_unread_pipe_as_stdout_forwards_requests_and_ends(cluster, ending):
    options = ["--api", "Metadata", "--delay", "1ms", "--times", "0"]
    options += ["--seconds", "5"] * (ending == "seconds")
    with injecting(cluster, *options) as (process, address):
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        with BlockingAdmin(address, timeout_ms=5_000) as admin:
            for _ in range(REQUESTS):
                assert admin.describe_topics(["orders"])
        if ending == "ctrl-c":
            process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_S)  # with its output unread
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    left_out = re.search(r"(\d+) lines are missing here, because their reader was too slow", err)
    assert left_out, err
    assert out.count("\n") + int(left_out[1]) >= REQUESTS
    assert out.count("\n") > 10


@pytest.mark.cluster
def test_inject_without_a_matching_request_exits_three(cluster, capsys):
    options = ["--api", "EndTxn", "--lose-answer", "--seconds", "0.2", "--exit-when-done"]
    assert main.run(["inject", *options, "--data", str(cluster.data)]) == 3
    told = capsys.readouterr().err
    assert "The fault was not made: no EndTxn request came through the proxy." in told

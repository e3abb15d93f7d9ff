"""Test the view Faults of an `oncelog ui` process with a cluster of three nodes."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from oncelog.client.admin import LATEST, Admin
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.ports import is_refused
from oncelog.ui.faults.own_faults import KINDS, do_fault
from oncelog.ui.pages import faults
from oncelog.wire.errors import UnknownTopicOrPartition

pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from ...awaiting import until
from ..sites import Answer, Visitor, open_site

ENDS_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, data=tmp_path_factory.mktemp("faults") / "data") as running:
        yield running


@asynccontextmanager
async def page(cluster: Cluster, *options: str) -> AsyncIterator[Visitor]:
    """Run `oncelog ui` as a process, and yield a visitor with its token."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "oncelog.cli", "ui", "--no-open", *options),
        *("--data", str(cluster.data)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        address, token = line.split()[2].split("/?token=")
        visitor = Visitor(int(address.rpartition(":")[2]))
        visitor.headers = {"Authorization": f"Bearer {token}", "Origin": address}
        yield visitor
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), ENDS_S) == 0


async def _records(admin: Admin) -> int:
    try:
        return sum((await admin.list_offsets({("oncelog-load", 0): LATEST})).values())
    except UnknownTopicOrPartition:  # the topic is being created
        return 0


def pid_of(cluster: Cluster, node_id: int) -> int:
    process = cluster.node(node_id).find()
    assert process is not None
    return process.pid


async def done(visitor: Visitor, **fields: str) -> Answer:
    return await visitor.post("/fault", urlencode(fields))


@pytest.mark.in_turn
async def test_fault_request_is_answered_with_evidence_of_the_fault(cluster: Cluster) -> None:
    async with page(cluster) as visitor:
        shown = await visitor.get("/faults")
        assert shown.status == 200 and 'aria-label="kill node 2"' in shown.body
        pid = pid_of(cluster, 2)
        port = cluster.file.entry(2).port
        killed = await done(visitor, kind="kill", target="2")
        assert f"its pid {pid} is gone, and its port refuses" in killed.body
        # a zombie is gone for the page, but for its parent, this process, not until its threads end
        await until(lambda: cluster.node(2).find() is None)
        assert is_refused(port)
        assert "Node 2 serves again" in (await done(visitor, kind="start", target="2")).body
        paused = await done(visitor, kind="pause", target="controller")
        assert "is paused: its process is in state T" in paused.body
        assert "All nodes run" in (await done(visitor, kind="heal")).body
        assert "cut off from node 1, 2" in (await done(visitor, kind="cut", target="3")).body
        assert (
            "sends to the other nodes 200 ms" in (await done(visitor, kind="slow", target="1")).body
        )
        healed = await done(visitor, kind="heal")
        assert "all links work" in healed.body
        refused = await done(visitor, kind="start", target="1")
        assert refused.status == 409 and "Not done" in refused.body


async def test_load_button_starts_transactions_that_are_committed(cluster: Cluster) -> None:
    async with page(cluster) as visitor, Admin(cluster.bootstrap) as admin:
        assert "A load began" in (await done(visitor, kind="load")).body
        assert "Has written for" in (await done(visitor, kind="load")).body

        async with asyncio.timeout(ENDS_S):
            while not await _records(admin):
                await asyncio.sleep(0.2)
        assert "transactions committed" in (await visitor.get("/faults")).body


@pytest.mark.in_turn
async def test_fault_request_to_a_read_only_ui_is_refused(cluster: Cluster) -> None:
    async with page(cluster, "--read-only") as visitor:
        assert (await done(visitor, kind="kill", target="1")).status == 403
        assert (await visitor.get("/faults")).status == 403
        assert 'href="/faults"' not in (await visitor.get("/")).body
        assert pid_of(cluster, 1)


async def test_fault_request_with_another_origin_is_refused(cluster: Cluster) -> None:
    async with page(cluster) as visitor:
        pid = pid_of(cluster, 1)
        for origin in ("http://evil.example", f"http://localhost:{visitor.port}", ""):
            visitor.headers["Origin"] = origin
            assert (await done(visitor, kind="kill", target="1")).status == 403
        assert (await visitor.get("/fault?kind=kill&target=1")).status in (404, 405)
        assert pid_of(cluster, 1) == pid


async def test_fault_request_for_a_cluster_without_a_local_directory_is_refused(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path) as opened:
        ours = {"Origin": f"http://127.0.0.1:{opened.visitor.port}"}
        body = urlencode({"kind": "kill", "target": "1"})
        assert (await opened.visitor.post("/fault", body, **ours)).status == 403
        assert (await opened.visitor.get("/faults")).status == 403


@pytest.mark.parametrize(
    ("kind", "target"), [("burn", "1"), ("kill", ""), ("kill", "nobody"), ("kill", "9"), ("", "")]
)
def test_fault_request_that_is_impossible_is_refused_with_a_sentence(
    cluster: Cluster, kind: str, target: str
) -> None:
    with pytest.raises(Failure, match=r"\w+ .*\."):
        do_fault(cluster, kind, target)


def test_fault_buttons_of_the_view_equal_the_known_fault_kinds() -> None:
    offered = {*faults.RUNNING, *faults.BY_ROLE}.union(*faults.OF_STATE.values())
    assert offered == KINDS.keys() == faults.ABOUT.keys()

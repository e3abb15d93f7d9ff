"""Test the views and their JSON forms, for a broker that runs in the test."""

import asyncio
import json
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from oncelog.client.admin import EARLIEST, LATEST

from ..awaiting import until

pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from oncelog.ui.web.site import FIRST_VIEW_S

from .sites import OpenSite, Visitor, open_site, site_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
HOSTILE = "<script>alert('x')</script>\"&\x07"


async def filled(opened: OpenSite) -> None:
    """Create the topic orders, and write two committed records to orders/0."""
    await opened.admin.create_topic("orders", partitions=2)
    producer = await opened.open_transaction("first", "orders", 2)
    await producer.commit_transaction()
    await producer.close()


async def test_partition_view_with_an_open_transaction_equals_the_answers_of_the_protocol(
    tmp_path: Path,
):
    async with open_site(tmp_path) as opened:
        await filled(opened)
        producer = await opened.open_transaction("app-1", "orders")
        await until(lambda: ("orders", 0) in opened.site.facts.holders)
        key = ("orders", 0)
        found = (await opened.visitor.get("/api/partitions?topic=orders&partition=0")).json()
        (row,) = found["partitions"]
        ends = await opened.admin.list_offsets({key: LATEST})
        stable = await opened.admin.list_offsets({key: LATEST}, read_committed=True)
        starts = await opened.admin.list_offsets({key: EARLIEST})
        assert row["high_watermark"] == ends[key] == 6  # with the marker of the first
        assert row["last_stable"] == stable[key] == 3
        assert row["log_start"] == starts[key]
        described = await opened.admin.transactions.describe("app-1")
        (holder,) = row["open_transactions"]
        assert holder["transactional_id"] == "app-1"
        assert holder["producer_id"] == described.producer_id
        assert holder["first_offset"] == 3
        assert not holder["is_hanging"]
        page = (await opened.visitor.get("/topics/orders/0")).body
        assert "readers of committed data stop at offset 3. The high watermark is 6." in page
        assert 'href="/transactions/app-1"' in page
        await producer.abort_transaction()
        await producer.close()


async def test_transactions_view_shows_an_open_transaction_first_with_partitions_and_age(
    tmp_path: Path,
):
    async with open_site(tmp_path) as opened:
        await filled(opened)
        producer = await opened.open_transaction("app-1", "orders")
        await until(lambda: opened.site.facts.transactions.keys() >= {"app-1", "first"})
        found = (await opened.visitor.get("/api/transactions")).json()
        rows = {each["transactional_id"]: each for each in found["transactions"]}
        assert found["transactions"][0]["transactional_id"] == "app-1"
        assert rows["app-1"]["state"] == "Ongoing"
        assert rows["app-1"]["partitions"] == [{"topic": "orders", "partition": 0}]
        assert 0 <= rows["app-1"]["age_ms"] < 60_000
        assert rows["first"]["age_ms"] is None
        page = (await opened.visitor.get("/transactions/app-1")).body
        assert "app-1 has had a transaction open for" in page
        assert (await opened.visitor.get("/transactions/nobody")).status == 404
        await producer.close()


@pytest.mark.in_turn
async def test_group_view_shows_both_lags_and_the_partition_with_the_blocking_transaction(
    tmp_path: Path,
):
    async with open_site(tmp_path) as opened:
        await filled(opened)
        await opened.admin.groups.commit("readers", {("orders", 0): 3})
        producer = await opened.open_transaction("app-1", "orders")
        await until(lambda: "readers" in opened.site.facts.groups, 30)
        await until(lambda: ("orders", 0) in opened.site.facts.holders)
        (group,) = (await opened.visitor.get("/api/groups")).json()["groups"]
        assert (group["lag"], group["lag_to_last_stable"]) == (3, 0)
        page = (await opened.visitor.get("/groups/readers")).body
        assert "holds the rest open" in page
        assert 'href="/topics/orders/0"' in page
        await producer.close()


@pytest.mark.in_turn
async def test_records_view_shows_the_transaction_of_each_record_and_its_outcome(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        await filled(opened)
        aborted = await opened.open_transaction("app-2", "orders", 1)
        await aborted.abort_transaction()
        producer = await opened.open_transaction("app-1", "orders", 1)
        await opened.told("transactions")
        where = "/api/records?topic=orders&partition=0&offset=0"
        found = (await opened.visitor.get(where)).json()
        outcomes = [
            (r["offset"], r["value"], r["outcome"] or r["marker"]) for r in found["records"]
        ]
        assert outcomes == [
            (0, "first 0", "committed"),
            (1, "first 1", "committed"),
            (2, None, "commit"),
            (3, "app-2 0", "aborted"),
            (4, None, "abort"),
            (5, "app-1 0", "open"),
        ]
        committed = (await opened.visitor.get(f"{where}&isolation=read_committed")).json()
        assert [r["offset"] for r in committed["records"]] == [0, 1]
        page = (await opened.visitor.get("/topics/orders/0/records?offset=0")).body
        assert 'href="/transactions/app-1"' in page
        assert (await opened.visitor.get("/topics/orders/0/records?offset=x")).status == 400
        await producer.close()
        await aborted.close()


@pytest.mark.in_turn
async def test_ui_pages_of_a_cluster_with_hostile_names_have_no_injected_markup(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        await opened.admin.create_topic("orders", partitions=1)
        producer = await opened.open_transaction(HOSTILE, "orders", 1)
        await producer.send(
            "orders", value=HOSTILE.encode(), key=HOSTILE.encode(), headers=[(HOSTILE, b"<b>")]
        )
        await producer.flush()
        await opened.admin.groups.commit(HOSTILE, {("orders", 0): 0})
        await until(lambda: HOSTILE in opened.site.facts.groups, 30)
        await until(lambda: ("orders", 0) in opened.site.facts.holders)
        named = urlencode({"name": HOSTILE})
        for address in (
            "/", "/topics", "/topics/orders", "/topics/orders/0", "/topics/orders/0/records",
            "/transactions", "/groups", "/timeline", f"/topics/{quote(HOSTILE, safe='')}",
            f"/transactions?{named}", f"/groups?{named}",
        ):  # fmt: skip
            answer = await opened.visitor.get(address)
            assert "<script>" not in answer.body, address
            assert "<b>" not in answer.body, address
            assert "\x07" not in answer.body, address
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-frame-options"] == "DENY"
        known = await opened.visitor.get(f"/transactions?{named}")
        assert known.status == 200
        await producer.close()


async def test_first_ui_view_of_a_silent_cluster_reports_the_silence_within_a_second() -> None:
    async with site_of("127.0.0.1:1") as opened:
        page = (await opened.visitor.get("/")).body
        assert "No fresh answer about" in page
        assert "<strong>groups</strong>: not answered yet" in page
        assert 'id="age"' in page and "nothing is known yet" in page
    assert FIRST_VIEW_S < 1


async def test_event_stream_sends_a_message_when_a_new_observation_exists(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        cookie = opened.visitor.headers["Cookie"]
        port = opened.visitor.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /changes HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n"
        writer.write(head.encode())
        seen: list[int] = []
        async with asyncio.timeout(30):
            while len(set(seen)) < 3:
                line = await reader.readline()
                if line.startswith(b"data: "):
                    seen.append(json.loads(line[6:])["as_of_ms"])
        assert seen == sorted(seen)
        writer.close()
        await until(lambda: opened.site.streams == 0)


async def test_ui_visitor_without_cookie_or_token_is_refused(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        stranger = Visitor(opened.visitor.port)
        for address in ("/", "/api/cluster", "/changes", "/topics", "/?token=wrong"):
            answer = await stranger.get(address)
            assert answer.status == 403, address
            assert "127.0.0.1" not in answer.body
        token = opened.site.access.token
        answer = await stranger.get("/api/cluster", Authorization=f"Bearer {token}")
        assert answer.status == 200
        entered = await stranger.get(f"//evil.example/?a=1&token={token}")
        assert "url=/evil.example/?a=1" in entered.body
        entered = await stranger.get(f"/\\evil.example/?token={token}")
        assert 'url=/evil.example/"' in entered.body


async def test_ui_request_with_another_host_name_is_refused(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        port = opened.visitor.port
        for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}"):
            answer = await opened.visitor.get("/", Host=host)
            assert answer.status == 403, host
        assert (await opened.visitor.get("/", Host=f"localhost:{port}")).status == 200


async def test_ui_abort_without_cookie_origin_or_typed_id_is_refused(tmp_path: Path):
    async with open_site(tmp_path, can_write=True) as opened:
        await opened.admin.create_topic("orders", partitions=1)
        producer = await opened.open_transaction("app-1", "orders", 1)
        await until(lambda: "app-1" in opened.site.facts.transactions)
        port = opened.visitor.port
        ours = {"Origin": f"http://127.0.0.1:{port}"}
        body = urlencode({"transactional_id": "app-1", "confirm": "app-1"})
        unconfirmed = urlencode({"transactional_id": "app-1", "confirm": "app"})
        for refused in (
            await opened.visitor.post("/abort", body),
            await opened.visitor.post("/abort", body, Origin="http://evil.example"),
            await opened.visitor.post("/abort", body, Origin=f"http://localhost:{port}"),
            await Visitor(port).post("/abort", body, **ours),
        ):
            assert refused.status == 403
        assert (await opened.visitor.get(f"/abort?{body}")).status == 404
        assert (await opened.visitor.post("/abort", unconfirmed, **ours)).status == 400
        huge = {"topic": "orders", "partition": "9" * 5_000, "producer_id": "1", "confirm": "1"}
        assert (await opened.visitor.post("/abort", urlencode(huge), **ours)).status == 400
        assert (await opened.admin.transactions.describe("app-1")).state == "Ongoing"
        done = await opened.visitor.post("/abort", body, **ours)
        assert done.status == 200
        assert (await opened.admin.transactions.describe("app-1")).state != "Ongoing"
        await producer.close()


async def test_ui_abort_without_allow_writes_is_refused(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        await opened.admin.create_topic("orders", partitions=1)
        producer = await opened.open_transaction("app-1", "orders", 1)
        await until(lambda: "app-1" in opened.site.facts.transactions)
        body = urlencode({"transactional_id": "app-1", "confirm": "app-1"})
        ours = {"Origin": f"http://127.0.0.1:{opened.visitor.port}"}
        assert (await opened.visitor.post("/abort", body, **ours)).status == 403
        assert "type its id" not in (await opened.visitor.get("/transactions/app-1")).body
        assert (await opened.admin.transactions.describe("app-1")).state == "Ongoing"
        await producer.close()


async def test_observed_broker_gets_at_most_five_requests_a_second(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        await opened.admin.create_topic("orders", partitions=2)
        producer = await opened.open_transaction("app-1", "orders", 1)
        observer = opened.site.observer
        (connection,) = observer.admin.view.open_connections().values()
        sent = connection._pace._sent_ms  # type: ignore[attr-defined]
        times = set(sent)
        for _ in range(400):
            times |= set(sent)
            await asyncio.sleep(0.01)
        ordered = sorted(times)
        assert len(ordered) > 8
        windows = [b - a for a, b in zip(ordered, ordered[5:], strict=False)]
        assert min(windows) >= 1_000
        await producer.close()

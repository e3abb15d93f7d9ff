"""Test that the page serves all its views for an Apache Kafka, through the protocol alone."""

import secrets
from urllib.parse import quote, urlencode

import pytest

from ..awaiting import until

pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from .sites import site_of

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka as it comes")]
SEEN_S = 60


@pytest.mark.in_turn
async def test_ui_of_apache_kafka_explains_a_stuck_reader_and_aborts_the_blocking_transaction(
    kafka_as_it_comes: str,
):
    topic = f"page-{secrets.token_hex(4)}"
    name = f"{topic}-writer"
    async with site_of(kafka_as_it_comes, can_write=True) as opened:
        await opened.admin.create_topic(topic, partitions=1)
        producer = await opened.open_transaction(name, topic)
        await opened.admin.groups.commit(f"{topic}-readers", {(topic, 0): 0})
        facts = opened.site.observer
        await until(lambda: (topic, 0) in facts.facts.holders, SEEN_S)
        await until(lambda: f"{topic}-readers" in facts.facts.groups, SEEN_S)
        page = (await opened.visitor.get(f"/topics/{topic}/0")).body
        assert "readers of committed data stop at offset 0. The high watermark is 3." in page
        assert f'href="/transactions/{quote(name)}"' in page
        assert "holds the rest open" in (await opened.visitor.get(f"/groups/{topic}-readers")).body
        body = urlencode({"transactional_id": name, "confirm": name})
        origin = f"http://127.0.0.1:{opened.visitor.port}"
        done = await opened.visitor.post("/abort", body, Origin=origin)
        assert done.status == 200, done.body
        await until(lambda: (topic, 0) not in facts.facts.holders, SEEN_S)
        for view in ("/", "/topics", "/transactions", "/groups", "/timeline"):
            answer = await opened.visitor.get(view)
            assert answer.status == 200, view
            assert "No fresh answer" not in answer.body, view
        assert dict(facts.facts.not_exposed) == {}
        await producer.close()

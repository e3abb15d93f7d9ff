"""Test that a Metadata request waits while a broker's link is broken and it is not yet fenced."""

import asyncio
from collections.abc import Callable

import pytest

from oncelog.coordinator.metadata.commands import FenceBroker, encode_command
from oncelog.node.membership import suspected_brokers
from oncelog.runtime.sliced_work import run_to_end

from ...awaiting import settle
from ..fake_broker import FakeBroker

METADATA = 3
LONG_CONNECTED_MS = 10_000
TOPICS = {"topics": None, "allow_auto_topic_creation": False}


class FakeLinks:
    """Links to other brokers. The test reports their changes."""

    def __init__(self) -> None:
        self.change: Callable[[int, bool], None] = lambda node_id, is_open: None

    def on_link_change(self, callback: Callable[[int, bool], None]) -> None:
        self.change = callback


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def links(broker: FakeBroker) -> FakeLinks:
    links = FakeLinks()
    broker.services.suspected_brokers.watch(links, broker.state)
    links.change(2, True)
    links.change(3, True)
    return links


@pytest.fixture
def holds_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prolong the wait, so that the controller always fences the broker during the wait."""
    monkeypatch.setattr(suspected_brokers, "HOLD_MS", 60_000)


async def asked(broker: FakeBroker) -> "asyncio.Future[object]":
    """Send a Metadata request, let the event loop run, and return the future of the answer."""
    question = asyncio.ensure_future(broker.answer(METADATA, 9, TOPICS))
    await settle()
    return question


@pytest.mark.usefixtures("holds_long")
async def test_request_about_a_suspected_broker_is_answered_after_the_fence(
    broker: FakeBroker, links: FakeLinks
) -> None:
    links.change(2, False)
    question = await asked(broker)
    assert not question.done()
    broker.fence(2)
    answer = await question
    assert 2 not in [b.node_id for b in answer.brokers]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("holds_long")
async def test_request_just_before_a_link_breaks_waits_for_the_fence(
    broker: FakeBroker, links: FakeLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspected_brokers, "NEWS_MS", 400)
    question = await asked(broker)
    links.change(2, False)
    await asyncio.sleep(1.2 * suspected_brokers.NEWS_MS / 1000)
    assert not question.done()
    broker.fence(2)
    answer = await question
    assert 2 not in [b.node_id for b in answer.brokers]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("holds_long")
async def test_request_on_a_new_connection_waits_only_if_a_broker_is_suspected(
    broker: FakeBroker, links: FakeLinks
) -> None:
    """If the request waited, librdkafka would begin its first transaction 0.5 s later."""
    broker.context.connected_at_ms = broker.services.clock.monotonic_ms()
    question = await asked(broker)
    assert question.done()
    links.change(2, False)
    question = await asked(broker)
    assert not question.done()  # a broker is suspected
    links.change(2, True)
    await question


def test_request_between_two_steps_of_a_fence_waits(broker: FakeBroker, links: FakeLinks) -> None:
    for name in ("t", "u"):
        broker.create(name, partitions=300)

    async def scenario() -> None:
        fence = encode_command(FenceBroker(2, broker.state.brokers[2].broker_epoch))
        steps = broker.state.apply_steps(fence, 1000)
        next(steps)
        links.change(2, False)
        question = await asked(broker)
        assert not question.done()
        run_to_end(steps)
        answer = await question
        leaders = {p.leader_id for t in answer.topics for p in t.partitions}  # type: ignore[attr-defined]
        assert leaders == {1, 3}

    asyncio.run(scenario())


@pytest.mark.usefixtures("holds_long")
async def test_restored_link_ends_the_wait_for_a_suspected_broker(
    broker: FakeBroker, links: FakeLinks
) -> None:
    links.change(2, False)
    links.change(3, False)
    question = await asked(broker)
    links.change(2, True)
    await asyncio.sleep(0)
    assert not question.done()
    links.change(3, True)
    answer = await question
    assert len(answer.brokers) == 3  # type: ignore[attr-defined]


async def test_wait_for_a_suspected_broker_is_bounded_and_happens_once(
    broker: FakeBroker, links: FakeLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspected_brokers, "HOLD_MS", 20)
    links.change(2, False)
    links.change(3, False)
    await asyncio.wait_for(broker.services.suspected_brokers.settled(LONG_CONNECTED_MS), 5)
    links.change(2, False)  # an attempt to connect has failed
    assert (await asked(broker)).done()


async def test_links_that_break_one_after_another_delay_a_request_only_once(
    broker: FakeBroker, links: FakeLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspected_brokers, "HOLD_MS", 50)
    links.change(2, False)

    async def break_in_turn() -> None:
        while True:
            for broken, back in ((3, 2), (2, 3)):
                links.change(broken, False)
                links.change(back, True)
                await asyncio.sleep(0.01)

    breaking = asyncio.create_task(break_in_turn())
    await asyncio.wait_for(broker.services.suspected_brokers.settled(LONG_CONNECTED_MS), 5)
    breaking.cancel()


async def test_broken_link_to_a_fenced_broker_delays_no_request(
    broker: FakeBroker, links: FakeLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspected_brokers, "HOLD_MS", 60_000)
    broker.fence(2)
    links.change(2, False)
    await asyncio.wait_for(broker.services.suspected_brokers.settled(LONG_CONNECTED_MS), 5)

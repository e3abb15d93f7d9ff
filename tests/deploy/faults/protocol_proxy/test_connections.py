"""Test that a proxy forwards frames whole and in order, and holds, loses or answers them."""

import asyncio
import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.deploy.faults.protocol_proxy import connection as connection_module
from oncelog.deploy.faults.protocol_proxy.events import (
    Answer,
    ConnectionClosed,
    ConnectionOpened,
    FaultMade,
    Request,
)
from oncelog.deploy.faults.protocol_proxy.rules import (
    AnswerError,
    Delay,
    Disconnect,
    Hold,
    HoldPoint,
    LoseAnswer,
    LoseRequest,
    Match,
    Rule,
)
from oncelog.deploy.faults.protocol_proxy.two_ends import TwoEnds
from oncelog.wire.error_codes import ErrorCode

from ....awaiting import until
from .frames import request_frame
from .samples import SAMPLES, produce_request
from .scripted_broker import TIMEOUT_S, Bench, sent
from .scripted_broker import bench as new_bench

END = Match(apis={"EndTxn"})


def end_txn(number: int) -> bytes:
    return request_frame("EndTxn", 3, SAMPLES["EndTxn"], number)


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 400), max_size=12), count=st.integers(1, 8))
def test_proxy_forwards_frames_whole_however_their_bytes_are_split(cuts: list[int], count: int):
    async def run() -> None:
        async with new_bench() as bench:
            client = await bench.client()
            stream = b"".join(sent(end_txn(number)) for number in range(count))
            for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True):
                client.writer.write(stream[start:end])
                await client.writer.drain()
                await asyncio.sleep(0)
            assert [await client.correlation_id() for _ in range(count)] == list(range(count))
            assert bench.broker.heard == [end_txn(number) for number in range(count)]

    asyncio.run(run())


@pytest.mark.uvloop
async def test_proxy_forwards_frames_of_20_mb_whole(bench: Bench):
    bench.broker.answers = False
    client = await bench.client()
    frame = request_frame("Produce", 9, produce_request(9)) + bytes(20_000_000)
    client.send(frame)
    await until(lambda: bench.broker.heard)
    assert bench.broker.heard == [frame]
    bench.broker.writers[0].write(sent(b"\0\0\0\1" + frame))
    assert await client.read() == b"\0\0\0\1" + frame


async def test_proxy_events_of_a_connection_name_its_instance_and_are_in_order(bench: Bench):
    client = await bench.client("instance-2")
    client.send(end_txn(5))
    assert await client.correlation_id() == 5
    client.writer.close()
    await until(lambda: bench.of(ConnectionClosed))
    kinds = [type(event) for event in bench.events]
    assert kinds == [ConnectionOpened, Request, Answer, ConnectionClosed]
    opened, request, answer, closed = (bench.of(kind)[0] for kind in kinds)
    assert (opened.connection.instance, opened.connection.broker_id) == ("instance-2", 7)
    assert opened.connection.client_port == client.writer.get_extra_info("sockname")[1]
    assert (request.api, request.version, request.correlation_id) == ("EndTxn", 3, 5)
    assert (request.client_id, request.connection) == ("c", opened.connection)
    assert (request.body.transactional_id, request.subjects.transactional_ids) == (
        "writer",
        {"writer"},
    )
    assert (answer.request, answer.error_code, answer.fate) == (request, 0, "delivered")
    assert opened.at_s <= request.at_s <= answer.at_s <= closed.at_s
    assert closed.reason == "the client closed it"


async def test_proxy_expects_no_answer_to_a_produce_with_acks_zero(bench: Bench):
    client = await bench.client()
    client.send(request_frame("Produce", 9, produce_request(9, acks=0), 1))
    client.send(request_frame("Produce", 3, produce_request(3, None, acks=0), 2))
    client.send(end_txn(3))
    assert await client.correlation_id() == 3


@pytest.mark.parametrize(
    ("bytes_", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "the client uses TLS"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes is not accepted"),
        (b"\0\0\0\0", "a frame of 0 bytes"),
        (sent(b"\0\x1a"), "the request header is cut short"),
        (sent(b"\0\x1a\0\3\0\0\0\1\0\x09abc"), "the client id is cut short"),
    ],
)
async def test_proxy_closes_only_the_connection_of_a_malformed_frame(bench: Bench, bytes_, words):
    other = await bench.client()
    other.send(end_txn(1))
    assert await other.correlation_id() == 1
    client = await bench.client()
    client.writer.write(bytes_)
    assert await client.read() is None
    await until(lambda: bench.of(ConnectionClosed))
    (closed,) = bench.of(ConnectionClosed)
    assert words in closed.reason
    assert closed.is_refusal
    other.send(end_txn(2))
    assert await other.correlation_id() == 2


async def test_proxy_reports_a_refused_client_before_a_broker_is_connected(
    bench: Bench, monkeypatch
):
    async def read_before(ends: TwoEnds) -> None:
        ends.client.get_buffer(-1)[:4] = b"\x16\x03\x01\x02"
        ends.client.buffer_updated(4)
        await asyncio.sleep(TIMEOUT_S)

    monkeypatch.setattr(TwoEnds, "_connect", read_before)
    client = await bench.client()
    assert await client.read() is None
    await until(lambda: bench.of(ConnectionClosed))
    assert [type(event) for event in bench.events] == [ConnectionOpened, ConnectionClosed]
    assert bench.of(ConnectionClosed)[0].is_refusal


async def test_proxy_closes_a_connection_to_a_broker_that_sends_an_unrequested_answer(bench: Bench):
    bench.broker.answers = False
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.broker.heard)
    bench.broker.writers[0].write(sent(b"\0\0\0\x09"))
    assert await client.read() is None
    await until(lambda: bench.of(ConnectionClosed))
    assert "the broker answers request 9" in bench.of(ConnectionClosed)[0].reason


async def test_proxy_with_an_unreachable_broker_reports_its_address(bench: Bench):
    bench.hub.brokers.addresses[7] = ("127.0.0.1", 1)
    port = bench.hub.ports.port_of("one", 7)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        assert await reader.read() == b""
    finally:
        writer.close()
    await until(lambda: bench.of(ConnectionClosed))
    assert "no broker at 127.0.0.1:1" in bench.of(ConnectionClosed)[0].reason


@pytest.mark.uvloop
async def test_proxy_connection_left_by_its_client_while_connecting_to_the_broker_ends(
    bench: Bench, monkeypatch
):
    def accepted(ends: TwoEnds) -> None:
        ends.broker._on_made = lambda: ends.client.connection_lost(None)
        real(ends)

    real = TwoEnds._accepted
    monkeypatch.setattr(TwoEnds, "_accepted", accepted)
    client = await bench.client()
    assert await client.read() is None
    await until(lambda: bench.broker.ended and not bench.hub.connections)


async def test_proxy_reports_a_connection_closed_by_the_broker(bench: Bench):
    client = await bench.client()
    client.send(end_txn(1))
    await client.read()
    bench.broker.writers[0].close()
    assert await client.read() is None
    await until(lambda: bench.of(ConnectionClosed))
    assert bench.of(ConnectionClosed)[0].reason == "the broker closed it"
    assert not bench.hub.connections


async def test_proxy_forwards_at_most_its_maximum_of_requests_in_flight(bench: Bench, monkeypatch):
    monkeypatch.setattr(connection_module, "IN_FLIGHT_MAX", 3)
    bench.broker.answers = False
    client = await bench.client()
    for number in range(6):
        client.send(end_txn(number))
    await until(lambda: len(bench.broker.heard) == 3)
    await asyncio.sleep(0.05)
    assert len(bench.broker.heard) == 3
    bench.broker.answers = True
    for number in range(3):
        bench.broker.writers[0].write(sent(number.to_bytes(4) + b"\0\0\0\0\0\0\0\0"))
    assert [await client.correlation_id() for _ in range(6)] == list(range(6))


async def test_proxy_answers_too_new_api_versions_requests_itself(bench: Bench):
    client = await bench.client()
    client.send(b"\0\x12\0\x63\0\0\0\5\0\1c\0\1\1\0")
    frame = await client.read()
    assert frame == b"\0\0\0\5\0\x23\0\0\0\1\0\x12\0\0\0\5"
    assert bench.broker.heard == []


# -- rules


async def test_lose_answer_rule_closes_the_connection_after_the_broker_executed_the_request(
    bench: Bench,
):
    rule = Rule(END, LoseAnswer())
    bench.hub.add(rule)
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.read() is None
    await until(lambda: bench.of(ConnectionClosed))
    assert bench.broker.heard == [end_txn(1)]
    assert [answer.fate for answer in bench.of(Answer)] == ["lost"]
    assert [made.what for made in bench.of(FaultMade)] == [
        "its answer was lost; the broker has executed it"
    ]
    assert bench.hub.made(rule) == 1
    again = await bench.client()
    again.send(end_txn(2))
    assert await again.correlation_id() == 2


async def test_lose_answer_rule_forwards_an_answer_with_an_error(bench: Bench):
    rule = Rule(END, LoseAnswer())
    bench.hub.add(rule)
    client = await bench.client()
    bench.broker.error_code = int(ErrorCode.CONCURRENT_TRANSACTIONS)
    client.send(end_txn(1))
    assert await client.correlation_id() == 1
    assert bench.hub.made(rule) == 0
    bench.broker.error_code = 0
    client.send(end_txn(2))
    assert await client.read() is None
    assert bench.hub.made(rule) == 1


async def test_lose_answer_rule_does_not_count_a_request_without_an_answer(bench: Bench):
    rule = Rule(END, LoseAnswer())
    bench.hub.add(rule)
    bench.broker.answers = False
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.broker.heard)
    bench.broker.writers[0].close()
    assert await client.read() is None
    await until(lambda: bench.of(ConnectionClosed))
    bench.broker.answers = True
    again = await bench.client()
    again.send(end_txn(2))
    assert await again.read() is None
    assert bench.hub.made(rule) == 1


async def test_lose_request_rule_forwards_no_request_and_sends_no_answer_until_its_timeout(
    bench: Bench,
):
    bench.hub.add(Rule(END, LoseRequest(0.3)))
    client = await bench.client()
    client.send(end_txn(1))
    client.send(end_txn(2))
    await until(lambda: bench.broker.ended)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.reader.read(1)
    assert await client.read() is None
    assert bench.broker.heard == []
    await until(lambda: bench.of(ConnectionClosed))
    assert "0.3 s have passed" in bench.of(ConnectionClosed)[0].reason


async def test_lose_request_rule_ends_when_the_client_disconnects(bench: Bench):
    bench.hub.add(Rule(END, LoseRequest()))
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.of(FaultMade))
    client.writer.close()
    await until(lambda: bench.of(ConnectionClosed))
    assert not bench.hub.connections


async def test_answer_error_rule_keeps_the_order_of_answers(bench: Bench):
    bench.broker.answers = False
    rule = Rule(Match(apis={"OffsetCommit"}), AnswerError(ErrorCode.NOT_COORDINATOR))
    bench.hub.add(rule)
    client = await bench.client()
    client.send(end_txn(1))
    client.send(request_frame("OffsetCommit", 8, SAMPLES["OffsetCommit"], 2))
    client.send(end_txn(3))
    await until(lambda: len(bench.broker.heard) == 2)
    for number in (1, 3):
        bench.broker.writers[0].write(sent(number.to_bytes(4) + b"\0\0\0\0\0\0\0\0"))
    assert [await client.correlation_id() for _ in range(3)] == [1, 2, 3]
    told = [(a.error_code, a.is_from_broker) for a in bench.of(Answer)]
    assert told == [(0, True), (int(ErrorCode.NOT_COORDINATOR), False), (0, True)]
    assert bench.broker.correlation_ids == [1, 3]


async def test_answer_error_rule_sends_its_error_after_an_earlier_delayed_answer(bench: Bench):
    commits = Match(apis={"OffsetCommit"})
    bench.hub.add(Rule(END, Delay(0.2, "answer")))
    bench.hub.add(Rule(commits, AnswerError(ErrorCode.NOT_COORDINATOR)))
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.of(Answer))
    client.send(request_frame("OffsetCommit", 8, SAMPLES["OffsetCommit"], 2))
    assert [await client.correlation_id() for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(("when", "heard"), [("before", 0), ("after", 1)])
async def test_disconnect_rule_closes_before_or_after_the_broker_sees_the_request(
    bench: Bench, when, heard
):
    bench.hub.add(Rule(END, Disconnect(when), nth=2))
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.correlation_id() == 1
    client.send(end_txn(2))
    assert await client.read() is None
    await until(lambda: bench.broker.ended)
    assert bench.broker.heard == [end_txn(1), end_txn(2)][: 1 + heard]


@pytest.mark.parametrize("of", ["request", "answer"])
async def test_delay_rule_delays_the_request_or_the_answer(bench: Bench, of):
    bench.hub.add(Rule(END, Delay(0.2, of)))
    client = await bench.client()
    began = asyncio.get_running_loop().time()
    client.send(end_txn(1))
    client.send(end_txn(2))
    if of == "answer":
        await until(lambda: len(bench.broker.heard) == 2 and bench.of(Answer))
        assert [answer.fate for answer in bench.of(Answer)] == ["held"]
    assert [await client.correlation_id() for _ in range(2)] == [1, 2]
    assert asyncio.get_running_loop().time() - began >= 0.19
    assert [answer.fate for answer in bench.of(Answer)] == ["delivered"] * 2


async def test_delay_rule_loses_the_answer_to_a_disconnected_client(bench: Bench):
    bench.hub.add(Rule(END, Delay(0.2, "answer")))
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.of(Answer))
    client.writer.transport.abort()
    await until(lambda: bench.of(FaultMade))
    assert [answer.fate for answer in bench.of(Answer)] == ["lost"]


async def test_delay_rule_forwards_a_request_of_a_disconnected_client(bench: Bench):
    bench.hub.add(Rule(END, Delay(0.2)))
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.of(Request))
    client.writer.transport.abort()
    await until(lambda: bench.broker.heard)
    await until(lambda: bench.of(ConnectionClosed))
    assert bench.broker.heard == [end_txn(1)]


# -- holds


@pytest.mark.parametrize(
    ("at", "heard", "answered"),
    [
        (HoldPoint.BEFORE_REQUEST, 0, 0),
        (HoldPoint.BEFORE_ANSWER, 1, 0),
        (HoldPoint.AFTER_ANSWER, 1, 1),
    ],
)
async def test_hold_rule_keeps_the_frame_until_its_callback_returns(
    bench: Bench, at, heard, answered
):
    called, go_on = threading.Event(), threading.Event()
    given_: list[bool] = []

    def act(request, answer):
        given_.append(answer is not None)
        called.set()
        assert go_on.wait(10)

    rule = Rule(END, Hold(at, act))
    bench.hub.add(rule)
    client = await bench.client()
    client.send(end_txn(1))
    await until(called.is_set)
    if answered:
        assert await client.correlation_id() == 1
    client.send(end_txn(2))
    await asyncio.sleep(0.05)
    held_behind = 2 if at is HoldPoint.BEFORE_ANSWER else heard  # requests go on there
    assert (len(bench.broker.heard), bench.hub.made(rule)) == (held_behind, 0)
    go_on.set()
    left = [1, 2][answered:]
    assert [await client.correlation_id() for _ in left] == left
    assert given_ == [at is not HoldPoint.BEFORE_REQUEST]
    assert bench.hub.made(rule) == 1
    assert at.value in bench.of(FaultMade)[0].what


async def test_hold_rule_that_returns_disconnect_never_forwards_the_request(bench: Bench):
    bench.hub.add(Rule(END, Hold(HoldPoint.BEFORE_REQUEST, lambda *_: Disconnect())))
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.read() is None
    await until(lambda: bench.broker.ended)
    assert bench.broker.heard == []
    (made,) = bench.of(FaultMade)
    words = r"held for 0\.\d s before its request, then disconnected before the broker saw it"
    assert re.fullmatch(words, made.what)
    assert bench.hub.made(made.rule) == 1


async def test_hold_rule_that_returns_lose_answer_drops_the_answer(bench: Bench):
    bench.hub.add(Rule(END, Hold(HoldPoint.BEFORE_ANSWER, lambda *_: LoseAnswer())))
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.read() is None
    assert [answer.fate for answer in bench.of(Answer)] == ["lost"]


async def test_hold_rule_with_a_coroutine_callback_awaits_the_callback(bench: Bench):
    async def act(request, answer):
        await asyncio.sleep(0.01)
        return Disconnect()

    bench.hub.add(Rule(END, Hold(HoldPoint.BEFORE_ANSWER, act)))
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.read() is None


async def test_hold_rule_forwards_the_frame_at_its_deadline(bench: Bench):
    go_on = threading.Event()

    def act(request, answer):
        go_on.wait(20)

    bench.hub.add(Rule(END, Hold(HoldPoint.BEFORE_REQUEST, act, 0.1)))
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.correlation_id() == 1
    assert "let go at its deadline" in bench.of(FaultMade)[0].what
    go_on.set()


async def test_hold_rule_with_a_raising_callback_forwards_the_frame_and_reports_the_error(
    bench: Bench,
):
    def act(request, answer):
        raise RuntimeError("no such process")

    bench.hub.add(Rule(END, Hold(HoldPoint.BEFORE_REQUEST, act)))
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.correlation_id() == 1
    assert str(bench.hub.problem) == "no such process"


async def test_rule_with_a_raising_condition_does_not_apply_and_reports_the_error(
    bench: Bench,
):
    bench.hub.add(Rule(Match(where=lambda request: 1 / 0 > 1), Disconnect()))
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.correlation_id() == 1
    assert isinstance(bench.hub.problem, ZeroDivisionError)


async def test_proxy_with_a_lower_transaction_timeout_rewrites_init_producer_id():
    async with new_bench(transaction_timeout_ms=10_000) as bench:
        client = await bench.client()
        client.send(request_frame("InitProducerId", 4, SAMPLES["InitProducerId"], 1))
        await until(lambda: bench.broker.heard)
        lower = SAMPLES["InitProducerId"] | {"transaction_timeout": 10_000}
        assert bench.broker.heard == [request_frame("InitProducerId", 4, lower, 1)]
        (request,) = bench.of(Request)
        assert request.body.transaction_timeout == 60_000
        assert request.lowered == ("transaction_timeout_ms 60000 -> 10000",)

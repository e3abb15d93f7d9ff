"""Test that a client gets answers in the order of its requests, from broker or proxy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.deploy.faults.protocol_proxy.events import Answer
from oncelog.deploy.faults.protocol_proxy.in_flight import Exchange, InFlight
from oncelog.wire.primitives import MalformedFrame

from .frames import request_of
from .samples import SAMPLES


def exchange(number: int, is_made: bool) -> Exchange:
    request = request_of("EndTxn", 3, SAMPLES["EndTxn"], correlation_id=number)
    made = Answer(request, memoryview(b""), 0.0, False, "delivered") if is_made else None
    return Exchange(request, made=made)


@given(kinds=st.lists(st.booleans(), max_size=30), data=st.data())
def test_in_flight_requests_are_answered_in_their_order(kinds: list[bool], data: st.DataObject):
    in_flight, out, asked = InFlight(), list[int](), list[int]()
    waiting = list(enumerate(kinds))
    while waiting or asked:
        if waiting and (not asked or data.draw(st.booleans())):
            number, is_made = waiting.pop(0)
            in_flight.add(exchange(number, is_made))
            if not is_made:
                asked.append(number)
        else:
            number = asked.pop(0)
            out.append(in_flight.answered(number).request.correlation_id)
        out += [one.request.correlation_id for one in in_flight.take_made()]
    assert out == list(range(len(kinds)))
    assert len(in_flight) == 0


def test_in_flight_answer_without_a_request_is_malformed():
    in_flight = InFlight()
    with pytest.raises(MalformedFrame, match="answers request 5, the next to be answered is none"):
        in_flight.answered(5)
    in_flight.add(exchange(4, False))
    with pytest.raises(MalformedFrame, match="answers request 5, the next to be answered is 4"):
        in_flight.answered(5)
    assert [one.request.correlation_id for one in in_flight.abandon()] == [4]
    assert len(in_flight) == 0

"""Test the lifetimes of logins in answers that the proxy lowers, and those that it leaves."""

from typing import Any

import pytest

from oncelog.deploy.faults.protocol_proxy.events import Answer
from oncelog.deploy.faults.protocol_proxy.login_lifetimes import with_shorter_lifetime

from .frames import answer_frame, request_frame, request_from

TOLD = {"error_code": 0, "error_message": None, "auth_bytes": b"v=x", "session_lifetime": 60_000}


def answered(version: int, values: dict[str, Any], api: str = "SaslAuthenticate") -> Answer:
    asked = {"auth_bytes": b"r=x"} if api == "SaslAuthenticate" else {"mechanism": "PLAIN"}
    request = request_from(memoryview(request_frame(api, version, asked, client_id="it")))
    frame = memoryview(answer_frame(api, version, values))
    return Answer(request, frame, 0.0, True, "delivered")


@pytest.mark.parametrize("version", [1, 2])
def test_login_with_a_long_lifetime_gets_the_shorter_one_and_keeps_the_rest(version: int) -> None:
    answer = answered(version, TOLD)
    frame = memoryview(with_shorter_lifetime(answer, answer._frame, 2_000))
    after = Answer(answer.request, frame, 0.0, True, "delivered").body
    assert (answer.body.session_lifetime, after.session_lifetime) == (60_000, 2_000)
    after.session_lifetime = 60_000
    assert after == answer.body


@pytest.mark.parametrize(
    ("answer", "lifetime_ms"),
    [
        (answered(2, TOLD), 0),
        (answered(2, TOLD), 60_000),
        (answered(2, TOLD | {"session_lifetime": 0}), 2_000),  # it may not authenticate again
        (answered(0, {k: v for k, v in TOLD.items() if k != "session_lifetime"}), 2_000),
        (answered(1, {"error_code": 0, "mechanisms": ["PLAIN"]}, "SaslHandshake"), 2_000),
    ],
)
def test_answer_without_a_longer_lifetime_is_unchanged(answer: Answer, lifetime_ms: int) -> None:
    assert with_shorter_lifetime(answer, answer._frame, lifetime_ms) is answer._frame

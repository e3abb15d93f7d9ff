"""Shorten the lifetimes of logins in answers, so that clients authenticate again soon (KIP-368).

The broker's own lifetime stays, so it closes no connection. A broker without a lifetime refuses to
authenticate again, and its answers are not changed.
"""

from ....wire.messages import control
from ....wire.messages.api_keys import SASL_AUTHENTICATE
from .bodies import answer_body_offset, is_known
from .events import Answer

LIFETIMES_FROM = 1


def with_shorter_lifetime(
    answer: Answer, frame: bytes | memoryview, lifetime_ms: int
) -> bytes | memoryview:
    """Return the frame for the client, the same object if nothing changes.

    lifetime_ms: the longest lifetime, 0 for any. Raises MalformedFrame.
    """
    key, version = answer.request.api_key, answer.request.version
    if key != SASL_AUTHENTICATE or not lifetime_ms or version < LIFETIMES_FROM:
        return frame
    if not is_known(key, version) or answer.body.session_lifetime <= lifetime_ms:
        return frame
    whole = memoryview(frame)
    offset = answer_body_offset(key, version, whole)
    body = control.decode_response(key, version, whole[offset:])
    body.session_lifetime = lifetime_ms
    return bytes(whole[:offset]) + control.encode_response(key, version, body)

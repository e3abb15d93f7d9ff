"""The APIs of a client's login.

SaslHandshake 1       KIP-152; the client chooses a mechanism. With version 0 the tokens would
                      not be Kafka requests; clients that know version 1 never use version 0.
SaslAuthenticate 0-2  KIP-152; the mechanism's tokens; v1 has the session's lifetime (KIP-368).

After a failed login the answer is delayed by `connection.failed.authentication.delay.ms`, and the
connection is closed. On a listener without SASL both APIs answer ILLEGAL_SASL_STATE, as in Kafka.
"""

import asyncio
from functools import partial

from ....wire.errors import ErrorCode, IllegalSaslState, KafkaError, SaslAuthenticationFailed
from ....wire.framing import Buffer, RequestHeader
from ....wire.messages import api_keys, control, responses
from ...listener.dispatch import Api, RequestContext
from ...listener.pending_answer import PendingAnswer
from ...security.rights import OPEN


def shake_hands(
    context: RequestContext, header: RequestHeader, body: memoryview
) -> list[Buffer] | PendingAnswer:
    """Begin a login with the mechanism that the client has chosen."""
    version, login = header.api_version, context.login
    request = control.decode_request(api_keys.SASL_HANDSHAKE, version, body)
    names = [] if login is None else login.mechanisms
    error: KafkaError | None = None
    try:
        if login is None:
            raise IllegalSaslState
        login.choose(request.mechanism, context.broker.clock.monotonic_ms())
    except KafkaError as problem:
        error = problem
    answer = _handshake(version, ErrorCode.NONE if error is None else error.code, names)
    if error is None or isinstance(error, IllegalSaslState):
        return [answer]
    return _refused(context, answer, str(error))


def _handshake(version: int, error: int, mechanisms: list[str]) -> bytes:
    values: responses.SaslHandshake.Response = {"error_code": error, "mechanisms": mechanisms}
    return control.encode_response(api_keys.SASL_HANDSHAKE, version, values)


def authenticate(
    context: RequestContext, header: RequestHeader, body: memoryview
) -> list[Buffer] | PendingAnswer:
    """Process one token of the client. The last token sets the principal of the connection."""
    version, login = header.api_version, context.login
    request = control.decode_request(api_keys.SASL_AUTHENTICATE, version, body)
    error: KafkaError
    try:
        if login is None:
            raise IllegalSaslState(
                "SaslAuthenticate request received after successful authentication"
            )
        now_ms = context.broker.clock.monotonic_ms()
        token, lifetime_ms = login.take(bytes(request.auth_bytes), now_ms)
    except KafkaError as problem:
        error = problem
    else:
        if login.principal is not None:
            context.principal = login.principal
        return [_token(version, {"auth_bytes": token, "session_lifetime": lifetime_ms})]
    answer = _token(version, {"error_code": error.code, "error_message": str(error)})
    if isinstance(error, SaslAuthenticationFailed):
        return _refused(context, answer, str(error))
    return [answer]


def _token(version: int, values: "responses.SaslAuthenticate.Response") -> bytes:
    return control.encode_response(api_keys.SASL_AUTHENTICATE, version, values)


def _refused(context: RequestContext, answer: bytes, reason: str) -> PendingAnswer:
    """Delay the answer, to slow down password guessing, and close the connection."""
    pending = PendingAnswer()
    delay_s = context.broker.config.connection_failed_authentication_delay_ms / 1000
    abort = partial(pending.abort, reason, [answer])
    timer = asyncio.get_running_loop().call_later(delay_s, abort)
    pending.on_abandon = timer.cancel
    return pending


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        Api(api_keys.SASL_HANDSHAKE, 1, 1, shake_hands, rights=OPEN),
        Api(api_keys.SASL_AUTHENTICATE, 0, 2, authenticate, rights=OPEN),
    )

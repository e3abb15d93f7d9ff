"""The APIs of users' SCRAM credentials (KIP-554).

DescribeUserScramCredentials 0 and AlterUserScramCredentials 0, with Kafka's checks and messages. A
broker never receives a password. The client sends the salted password, and the broker stores only
the two keys of RFC 5802 that are derived from it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ....coordinator.metadata.commands import AlterScramCredentials
from ....coordinator.security.scram_changes import MECHANISM_NAMES, ScramChange
from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation
from ....wire.errors import ErrorCode, KafkaError, error_for
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ....wire.security.scram_server import ITERATIONS_LEAST, ITERATIONS_MOST, credential_of
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.rights import on_cluster
from ..answers import code_with_message, entries_bytes

NAME_BYTES_MAX = SALT_BYTES_MAX = 1_000
HASHED_AT_ONCE = 50  # takes about half a millisecond
SALTED_BYTES = {1: 32, 2: 64}  # the length of a salted password, by mechanism


def describe(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.DescribeUserScramCredentialsRequest",
) -> "Steps[responses.DescribeUserScramCredentials.Response]":
    """Return the mechanisms of users, with their iterations."""
    credentials = context.broker.state.scram_credentials
    asked, counter = Counter[str](), StepCounter()
    for user in request.users or ():
        asked[user.name] += 1
        if counter.ends_step():
            yield
    results: list[responses.DescribeUserScramCredentials.DescribeUserScramCredentialsResult] = []
    for name in list(asked or credentials):
        error, message = ErrorCode.NONE, None
        if asked[name] > 1:
            error = ErrorCode.DUPLICATE_RESOURCE
            message = (
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{name}"
            )
        elif name not in credentials:
            if not asked:
                continue  # the user was removed during the request
            error = ErrorCode.RESOURCE_NOT_FOUND
            message = f"Attempt to describe a user credential that does not exist: {name}"
        found = credentials.get(name, {}) if not error else {}
        results.append(
            {
                "user": name,
                "error_code": error,
                "error_message": message,
                "credential_infos": [
                    {"mechanism": mechanism, "iterations": found[mechanism].iterations}
                    for mechanism in sorted(found)
                ],
            }
        )
        if counter.ends_step():
            yield
    return {"results": results}


def _described_bytes(
    context: RequestContext, request: "requests.DescribeUserScramCredentialsRequest"
) -> Steps[int]:
    users = 0 if request.users else len(context.broker.state.scram_credentials)
    return entries_bytes(lambda count: 2 * count, [users])  # for a user and its credential


async def alter(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.AlterUserScramCredentialsRequest",
) -> "responses.AlterUserScramCredentials.Response":
    """Set or delete credentials of users, and return the outcome of each user."""
    work = context.broker.work
    errors, changes = await work.finish("AlterUserScramCredentials", _judged(request))
    if changes:
        result = await context.broker.controller.submit(
            AlterScramCredentials(tuple(changes)),
            timeout_ms=context.broker.config.request_timeout_ms,
        )
        if result.error:
            raise error_for(result.error, result.message)
        for change, item in zip(changes, result.items, strict=True):
            if item.error:
                errors[change.name] = (item.error, item.message)
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))

    def answer(name: str) -> Any:
        error, message = errors.get(name, (ErrorCode.NONE, None))
        return {"user": name, "error_code": error, "error_message": message}

    return {"results": Each(answer, names)}


def _judged(
    request: "requests.AlterUserScramCredentialsRequest",
) -> Steps[tuple[dict[str, tuple[int, str | None]], list[ScramChange]]]:
    """Return the errors by user, and the alterations of all users without an error."""
    errors: dict[str, tuple[int, str | None]] = {}
    seen: set[tuple[str, int]] = set()
    counter = StepCounter(HASHED_AT_ONCE)
    for each in (*request.deletions, *request.upsertions):
        if counter.ends_step():
            yield
        problem = _problem(each)
        if (each.name, each.mechanism) in seen:
            problem = (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        seen.add((each.name, each.mechanism))
        if problem is not None:
            errors.setdefault(each.name, problem)
    changes: list[ScramChange] = []
    for each in request.deletions:
        if counter.ends_step():
            yield
        if each.name not in errors:
            changes.append(ScramChange(each.name, each.mechanism))
    for each in request.upsertions:
        if counter.ends_step():
            yield
        if each.name not in errors:
            salt, salted = bytes(each.salt), bytes(each.salted_password)
            kept = credential_of(MECHANISM_NAMES[each.mechanism], salted, salt, each.iterations)
            changes.append(ScramChange(each.name, each.mechanism, *kept))
    return errors, changes


def _problem(each: Any) -> tuple[ErrorCode, str] | None:
    """Return the error of one alteration and its message, or None if it is valid by itself."""
    if not each.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if len(each.name.encode()) > NAME_BYTES_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The username is too long"
    if each.mechanism not in MECHANISM_NAMES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    iterations = getattr(each, "iterations", None)
    if iterations is None:
        return None
    if iterations > ITERATIONS_MOST:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if iterations < ITERATIONS_LEAST:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if not 0 < len(each.salt) <= SALT_BYTES_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt is empty or too long"
    if len(each.salted_password) != SALTED_BYTES[each.mechanism]:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password has another length"
    return None


def _refused_users(
    request: "requests.AlterUserScramCredentialsRequest", error: KafkaError
) -> "responses.AlterUserScramCredentials.Response":
    names: Sequence[str] = [each.name for each in (*request.deletions, *request.upsertions)]
    return {
        "results": [
            {"user": name, "error_code": error.code, "error_message": str(error)}
            for name in dict.fromkeys(names)
        ]
    }


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.DESCRIBE_USER_SCRAM_CREDENTIALS,
            (0, 0),
            describe,
            code_with_message,
            rights=(on_cluster(AclOperation.DESCRIBE),),
            answer_bytes=_described_bytes,
        ),
        control_api(
            api_keys.ALTER_USER_SCRAM_CREDENTIALS,
            (0, 0),
            alter,
            _refused_users,
            rights=(on_cluster(AclOperation.ALTER),),
        ),
    )

"""Test SCRAM requests whose users change meanwhile, or whose changes are refused."""

from pathlib import Path
from typing import Any
from unittest import mock

from oncelog.coordinator.metadata.commands import AlterScramCredentials
from oncelog.coordinator.metadata.results import Result
from oncelog.coordinator.security.scram_changes import ScramChange
from oncelog.node.handlers.security.scram_credentials import alter, describe
from oncelog.node.listener.dispatch import RequestContext
from oncelog.runtime.steps import MADE_A_STEP
from oncelog.wire.errors import ErrorCode, InvalidRequest
from oncelog.wire.framing import RequestHeader
from oncelog.wire.messages import api_keys, control

from ...own_broker import OwnBroker, running

USERS = [f"user-{number:03}" for number in range(MADE_A_STEP + 20)]
HEADER = RequestHeader(50, 0, 1, "it", 0)


async def change(broker: OwnBroker, *changes: ScramChange) -> None:
    command = AlterScramCredentials(changes)
    result = await broker.services.controller.submit(command, timeout_ms=20_000)
    assert not any(item.error for item in result.items)


async def test_scram_user_removed_during_a_description_is_omitted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await change(broker, *(ScramChange(name, 1, b"s", b"k", b"k", 4_096) for name in USERS))
        context = RequestContext(broker.services, 1, "127.0.0.1")
        body = control.encode_request(api_keys.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
        request = control.decode_request(
            api_keys.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, memoryview(body)
        )
        describing: Any = describe(context, HEADER, request)
        next(describing)
        await change(broker, ScramChange(USERS[-1], 1))
        try:
            while True:
                next(describing)
        except StopIteration as end:
            results = end.value["results"]
        assert {each["user"]: each["error_code"] for each in results} == dict.fromkeys(
            USERS[:-1], 0
        )


async def test_scram_user_with_one_refused_change_gets_none_of_its_changes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        context = RequestContext(broker.services, 1, "127.0.0.1")
        password = {"iterations": 4_096, "salt": b"s", "salted_password": bytes(64)}
        values = {
            "deletions": [{"name": "alice", "mechanism": 1}],
            "upsertions": [{"name": "alice", "mechanism": 2, **password}],
        }
        body = control.encode_request(api_keys.ALTER_USER_SCRAM_CREDENTIALS, 0, values)
        request = control.decode_request(api_keys.ALTER_USER_SCRAM_CREDENTIALS, 0, memoryview(body))
        answer: Any = await alter(context, HEADER, request)
        errors = {each["user"]: each["error_code"] for each in answer["results"]}
        assert errors == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
        assert not broker.services.state.scram_credentials


async def test_scram_changes_that_the_controller_refuses_fail_with_its_message(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await change(broker, ScramChange("alice", 1, b"s", b"k", b"k", 4_096))
        context = RequestContext(broker.services, 1, "127.0.0.1")
        values = {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []}
        body = control.encode_request(api_keys.ALTER_USER_SCRAM_CREDENTIALS, 0, values)
        request = control.decode_request(api_keys.ALTER_USER_SCRAM_CREDENTIALS, 0, memoryview(body))
        refusal = Result(error=ErrorCode.INVALID_REQUEST, message="an older controller")

        async def submit(*_: Any, **__: Any) -> Result:
            return refusal

        with mock.patch.object(broker.services.controller, "submit", submit):
            try:
                answer: Any = await alter(context, HEADER, request)
            except InvalidRequest as error:
                assert str(error) == refusal.message
            else:
                raise AssertionError(list(answer["results"]))

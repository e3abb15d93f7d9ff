"""Test that each API can answer with an error in each of its versions."""

from pathlib import Path
from typing import Any

import pytest

from oncelog.node.handlers.api_table import served_apis
from oncelog.node.listener.dispatch import Api
from oncelog.wire.errors import UnknownServerError
from oncelog.wire.framing import decode_request_header, encode_request_header
from oncelog.wire.messages.apis import API_NAMES
from oncelog.wire.primitives import STRING_BYTES_MAX

from ..fake_broker import CLOSED
from ..leading_broker import LeadingBroker
from .large_requests import Names, plain_request

WITH_CODECS_OF_THEIR_OWN = (0, 1)  # Produce, Fetch: see produce/ and fetch/
NAMES = Names(["t"], [bytes(16)])
APIS = [
    api
    for api in served_apis(None)  # type: ignore[arg-type]
    if api.on_error is not None and api.key not in WITH_CODECS_OF_THEIR_OWN
]


@pytest.mark.parametrize("api", APIS, ids=lambda api: API_NAMES[api.key])
async def test_error_answer_exists_for_every_api_and_version(tmp_path: Path, api: Api) -> None:
    connection = LeadingBroker(tmp_path).connect()
    assert api.on_error is not None
    for version in range(api.min_version, api.max_version + 1):
        body = plain_request(api.key, version, NAMES)
        header = decode_request_header(
            memoryview(encode_request_header(api.key, version, 1, "test"))
        )
        for error in (UnknownServerError("broken"), UnknownServerError(40_000 * "x")):
            outcome = api.on_error(connection, header, memoryview(body), error)
            assert isinstance(outcome, list) and all(outcome), version


LONG = STRING_BYTES_MAX * "x"
CONFIG = {"name": LONG, "value": LONG}
RESOURCE = {"resource_type": 2, "resource_name": LONG}
LONG_NAMES: dict[int, dict[str, Any]] = {
    19: {"topics": [{"name": LONG, "num_partitions": 1, "replication_factor": 1}], "timeout": 9},
    20: {"topics": [{"name": LONG}], "topic_names": [LONG], "timeout": 9},
    32: {"resources": [RESOURCE | {"configuration_keys": [LONG]}]},
    33: {"resources": [RESOURCE | {"configs": [CONFIG]}]},
    37: {"topics": [{"name": LONG, "count": 3}], "timeout": 9},
    43: {"topic_partitions": [{"topic": LONG, "partitions": [0]}], "timeout": 9},
    44: {"resources": [RESOURCE | {"configs": [CONFIG | {"config_operation": 0}]}]},
}


@pytest.mark.parametrize("api_key", LONG_NAMES, ids=lambda key: API_NAMES[key])
async def test_error_answer_for_a_name_of_the_largest_size_is_encoded_in_every_version(
    tmp_path: Path, api_key: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = LeadingBroker(tmp_path)
    api = next(each for each in APIS if each.key == api_key)
    for version in range(api.min_version, api.max_version + 1):
        answer = await broker.ask(api_key, version, LONG_NAMES[api_key])
        assert answer is not CLOSED
    # asyncio logs objects that another test has left, whenever they are collected.
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert not [each for each in errors if each.name != "asyncio"]

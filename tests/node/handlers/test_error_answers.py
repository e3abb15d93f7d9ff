"""Every API that is served can say an error in each of its versions, in fields that it has."""

from pathlib import Path

import pytest

from oncelog.node.handlers.api_table import served_apis
from oncelog.node.listener.dispatch import Api
from oncelog.wire.errors import UnknownServerError
from oncelog.wire.framing import decode_request_header, encode_request_header
from oncelog.wire.messages.apis import API_NAMES

from ..leading_broker import LeadingBroker
from .large_requests import Names, plain_request

WITH_CODECS_OF_THEIR_OWN = (0, 1)  # Produce, Fetch: test_produce, test_fetch
NAMES = Names(["t"], [bytes(16)])
APIS = [
    api
    for api in served_apis(None)  # type: ignore[arg-type]
    if api.on_error is not None and api.key not in WITH_CODECS_OF_THEIR_OWN
]


@pytest.mark.parametrize("api", APIS, ids=lambda api: API_NAMES[api.key])
async def test_an_error_has_an_answer_in_every_version(tmp_path: Path, api: Api) -> None:
    connection = LeadingBroker(tmp_path).connect()
    assert api.on_error is not None
    for version in range(api.min_version, api.max_version + 1):
        body = plain_request(api.key, version, NAMES)
        header = decode_request_header(
            memoryview(encode_request_header(api.key, version, 1, "test"))
        )
        outcome = api.on_error(connection, header, memoryview(body), UnknownServerError("broken"))
        assert isinstance(outcome, list) and all(outcome), version

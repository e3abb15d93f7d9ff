"""Encoded bodies of Produce and Fetch requests for tests."""

from typing import Any

from oncelog.wire.messages import control, fetch, produce

CODECS: dict[int, Any] = {0: produce, 1: fetch}


def encode_request_body(api_key: int, version: int, values: Any) -> bytes:
    if api_key in CODECS:
        return b"".join(CODECS[api_key].encode_request(values, version))
    return control.encode_request(api_key, version, values)

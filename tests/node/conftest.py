"""Answers with a field that no version of the message has are a mistake, wherever they happen."""

import pytest

from oncelog.wire.messages import control


@pytest.fixture(autouse=True)
def every_field_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = control.encode_response

    def checked(api_key, version, values):
        control.check_names(api_key, "response", values)
        return encode(api_key, version, values)

    monkeypatch.setattr(control, "encode_response", checked)

"""A long start is reported while it lasts."""

import pytest

from oncelog.pipeline.session import said_meanwhile

from ..waiting import until


def test_long_start_is_said_with_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    said = ""

    def is_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.count("oncelog: Spark starts (0 s)\n") > 1

    with said_meanwhile("Spark starts", every_s=0.01):
        until(is_said)


def test_short_start_is_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    with said_meanwhile("Spark starts"):
        pass
    assert capsys.readouterr().err == ""

"""Test that a message is printed repeatedly while Spark takes long to start."""

import pytest

from oncelog.pipeline.session import said_meanwhile

from ..waiting import until


def test_spark_start_that_takes_long_is_reported_with_its_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = ""

    def is_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.count("oncelog: Spark starts (0 s)\n") > 1

    with said_meanwhile("Spark starts", every_s=0.01):
        until(is_said)


def test_spark_start_that_is_short_prints_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    with said_meanwhile("Spark starts"):
        pass
    assert capsys.readouterr().err == ""

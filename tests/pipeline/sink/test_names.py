"""Test the names of a sink's transactional ids, and the sink that a name belongs to."""

import pytest

from oncelog.pipeline import ExactlyOnceSink
from oncelog.pipeline.sink.names import (
    check_sink_id,
    child_prefix,
    control_id,
    generation_of,
)


@pytest.mark.parametrize("name", ["", "a b", "a#1", "a/b", "x" * 101, "ä"])
def test_sink_id_that_cannot_be_part_of_a_transactional_id_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="sink_id"):
        check_sink_id(name)
    with pytest.raises(ValueError, match="sink_id"):
        ExactlyOnceSink(name, "127.0.0.1:1", "t")


def test_sink_generation_is_read_only_from_its_own_child_ids() -> None:
    mine = f"{child_prefix('s')}7.0000abcd.0"
    assert generation_of("s", mine) == 7
    other_sink = f"{child_prefix('s.g7')}7.0000abcd.0"
    for other in (control_id("s"), other_sink, "s.g7.0000abcd.0"):
        assert generation_of("s", other) is None
    nested = f"{child_prefix('s.g1.00000000.1')}2.0000abcd.0"
    assert generation_of("s", nested) is None
    assert generation_of("s.g1.00000000.1", nested) == 2

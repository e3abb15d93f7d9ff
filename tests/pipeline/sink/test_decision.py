"""Test that a decision is encoded into records and decoded, whatever the topic had before."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client import PreparedTransaction
from oncelog.pipeline.sink import decision
from oncelog.pipeline.sink.decision import (
    Decision,
    UnreadableDecision,
    decode,
    encode,
    newest_by_key,
)
from oncelog.pipeline.sink.names import child_prefix
from oncelog.pipeline.sink.stop_words import rows_missing

MESSAGE_BYTES_MAX = 1024 * 1024  # of a record, by default, with clients and brokers

children = st.builds(
    PreparedTransaction,
    st.text("abc.0123", min_size=1, max_size=40),
    st.integers(0, 2**62),
    st.integers(0, 32_767),
    st.booleans(),
)
decisions = st.builds(
    Decision,
    generation=st.integers(0, 2**40),
    query_id=st.text(max_size=40),
    batch_id=st.integers(-1, 2**40),
    decided_by=st.integers(0, 2**40),
    children=st.lists(children, max_size=20).map(tuple),
    is_done=st.booleans(),
    digest=st.text("0123456789abcdef", max_size=16),
    lost=st.lists(st.text("abc.0123", max_size=20), max_size=3).map(tuple),
)


@given(st.lists(decisions, min_size=1, max_size=4), st.integers(60, 400))
def test_newest_decision_is_decoded_from_any_number_of_chunks(
    written: list[Decision], chunk_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "CHUNK_BYTES_MAX", chunk_bytes)
        newest = newest_by_key(record for each in written for record in encode("s", each))
        assert decode("s", newest) == written[-1]


@pytest.mark.parametrize("count", [1, 3_000, 20_000])
def test_decision_with_an_alarm_about_any_number_of_children_is_encoded(count: int) -> None:
    rows = tuple(
        PreparedTransaction(f"{child_prefix('s' * 100)}1.0123456789abcdef.{i}", i, 0, True)
        for i in range(count + 2)
    )
    made = Decision(generation=1, query_id="q", batch_id=4, children=rows, times_out=True)
    lost = tuple(row.transactional_id for row in rows[1:-1])
    records = encode("s", made.without(lost))
    assert max(len(value) for _, value in records) < MESSAGE_BYTES_MAX
    found = decode("s", newest_by_key(records))
    assert found is not None and found == made.without(lost)
    assert replace(found, is_done=False).unfinished == (rows[0], rows[-1])
    for words in (
        rows_missing("s", found, "x"),
        rows_missing("s", replace(found, times_out=False), "x"),
    ):
        assert lost[0] in str(words) and len(str(words)) < 5_000


def test_decision_chunks_of_an_older_decision_are_not_mixed_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision, "CHUNK_BYTES_MAX", 10)
    rows = tuple(PreparedTransaction(f"id-{i}", i, 0, True) for i in range(3))
    older = Decision(generation=1, query_id="q", batch_id=4, decided_by=1, children=rows)
    newer = Decision(generation=1, query_id="q", batch_id=5, decided_by=1, children=rows[:2])
    newest = newest_by_key([*encode("s", older), *encode("s", newer)])
    assert decode("s", newest) == newer
    mixed = newest_by_key([*encode("s", newer)[1:], *encode("s", older)[:1]])
    with pytest.raises(UnreadableDecision, match="cannot be read"):
        decode("s", mixed)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"form":2}', b'{"form":1}'])
def test_decision_that_is_unreadable_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableDecision, match="sink s"):
        decode("s", {b"s": value})


def test_decision_of_a_sink_without_records_is_none() -> None:
    assert decode("s", {}) is None
    assert decode("s", {b"s": None, b"t": b"x"}) is None


def test_decision_with_too_many_children_is_refused_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision, "CHUNK_BYTES_MAX", 1)
    monkeypatch.setattr(decision, "CHUNKS_MAX", 2)
    rows = tuple(PreparedTransaction(f"id-{i}", i, 0, True) for i in range(3))
    with pytest.raises(ValueError, match=r"coalesce\(\)"):
        encode("s", Decision(generation=1, query_id="q", children=rows))

"""Test small parts of the page, such as escaping, addresses, access and record rows."""

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.proof.pages.markup import element
from oncelog.proof.pages.parts import clock, duration, number, size
from oncelog.ui.addresses import group_address, records_address, transaction_address
from oncelog.ui.record_rows import record_rows, text
from oncelog.ui.web.access import PageAccess
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.records import Record, encode_batch

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=30)


@given(TEXT)
def test_ui_address_of_any_name_decodes_to_that_name(name) -> None:
    address = transaction_address(name)
    path, _, query = address.partition("?")
    given_back = unquote(query.removeprefix("name=")) if query else unquote(path[14:])
    assert given_back == name
    steps = unquote(path).split("/")
    assert path.startswith("/transactions")
    assert not {".", ".."} & set(steps)
    assert re.fullmatch(r"[!-~]*", address)


def test_ui_address_escapes_only_the_special_characters_of_a_name() -> None:
    assert transaction_address("app-1") == "/transactions/app-1"
    assert group_address("a b") == "/groups/a%20b"
    assert records_address(("orders", 3), 7) == "/topics/orders/3/records?offset=7"


@given(TEXT, TEXT)
def test_html_element_escapes_children_and_attributes(child, value) -> None:
    made = element("p", child, title=value)
    assert made.count("<") == 2
    assert made.count(">") == 2
    assert made.count('"') == 2


def test_numbers_sizes_and_durations_are_formatted_for_readers() -> None:
    assert [number(None), number(1234567), number(1.5)] == ["-", "1,234,567", "1.5"]
    assert [size(None), size(999), size(1_500_000)] == ["-", "999 B", "1.5 MB"]
    assert [duration(ms) for ms in (None, 1_200, 65_000, 150_000, 9_000_000, -3_000)] == [
        "-", "1.2 s", "65 s", "2 min 30 s", "2 h 30 min", "-3.0 s",
    ]  # fmt: skip


def test_page_access_allows_only_its_own_host_origin_and_secrets() -> None:
    access = PageAccess(8080)
    ours = {"host": "127.0.0.1:8080"}
    assert access.refused("GET", ours) is None
    assert access.refused("GET", {}) is not None
    assert access.refused("GET", {"host": "evil.example:8080"}) is not None
    assert access.refused("PUT", ours) is not None
    assert access.refused("POST", ours) is not None
    assert access.refused("POST", {**ours, "origin": "http://evil.example"}) is not None
    assert access.refused("POST", {**ours, "origin": "null"}) is not None
    assert access.refused("POST", {**ours, "origin": "http://127.0.0.1:8080"}) is None
    assert not access.knows({})
    assert not access.knows({"cookie": f"{access.cookie_name}="})
    assert not access.knows({"cookie": f"oncelog_ui_1={access.cookie}"})
    assert access.knows({"cookie": f"a=b; {access.cookie_name}={access.cookie}"})
    assert access.knows({"authorization": f"Bearer {access.token}"})
    assert not access.knows({"authorization": f"Bearer {access.cookie}"})
    assert "HttpOnly; SameSite=Strict" in access.cookie_header()


@pytest.mark.parametrize("others", ['a={"x": 1}', "a=b c", "oncelog_ui_8080=other", "a"])
def test_page_access_finds_its_cookie_among_cookies_of_other_ports(others) -> None:
    access = PageAccess(8080)
    ours = f"{access.cookie_name}={access.cookie}"
    assert access.knows({"cookie": f"{others}; {ours}"})
    assert access.knows({"cookie": f"{ours}; {others}"})
    assert not access.knows({"cookie": others})


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
def test_page_access_from_other_sites_is_allowed_for_links_and_refused_for_loading(site) -> None:
    access = PageAccess(8080)
    sent = {"host": "127.0.0.1:8080", "sec-fetch-site": site}
    assert access.refused("GET", {**sent, "sec-fetch-mode": "navigate"}) is None
    for mode in ("cors", "no-cors"):
        assert access.refused("GET", {**sent, "sec-fetch-mode": mode}) is not None
    same = {**sent, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert access.refused("GET", same) is None


@pytest.mark.parametrize("at_ms", [-1, 2**62, -(2**63)])
def test_clock_text_of_a_time_beyond_the_calendar_is_a_dash(at_ms) -> None:
    assert "-" in clock(at_ms)


def batch(offset: int, producer_id: int, *values: bytes) -> bytes:
    records = [Record(offset + n, 1_000, None, value) for n, value in enumerate(values)]
    return encode_batch(
        records,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(kind: ControlType, offset: int, producer_id: int) -> bytes:
    return encode_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=1_000,
        base_offset=offset,
    )


@pytest.mark.parametrize("limit", [2, 100])
def test_record_rows_distinguish_aborted_committed_and_open_transactions(limit) -> None:
    data = (
        batch(0, 1, b"a")
        + batch(1, 2, b"b")
        + marker(ControlType.ABORT, 2, 1)
        + batch(3, 1, b"c")
        + marker(ControlType.COMMIT, 4, 2)
        + batch(5, 3, b"d")
    )
    rows = record_rows(data, [(1, 0)], from_offset=0, last_stable=5, end=6, limit=limit)
    found = [(row["offset"], row["outcome"] or row["marker"]) for row in rows]
    assert (
        found
        == [
            (0, "aborted"),
            (1, "committed"),
            (2, "abort"),
            (3, "committed"),
            (4, "commit"),
            (5, "open"),
        ][:limit]
    )


@pytest.mark.parametrize(("end", "undecided"), [(5, "open"), (6, "not known")])
def test_record_rows_after_the_lso_have_the_outcomes_of_the_markers_in_the_data(
    end, undecided
) -> None:
    data = (
        batch(0, 1, b"a")
        + batch(1, 2, b"b")
        + marker(ControlType.COMMIT, 2, 2)
        + batch(3, 3, b"c")
        + marker(ControlType.ABORT, 4, 3)
    )
    rows = record_rows(data, [], from_offset=0, last_stable=0, end=end, limit=9)
    found = [row["outcome"] for row in rows if row["marker"] is None]
    assert found == [undecided, "committed, held back", "aborted"]


def test_record_rows_of_a_damaged_batch_report_one_problem() -> None:
    data = bytearray(batch(0, 1, b"a") + batch(1, 1, b"b"))
    data[64] ^= 1
    rows = record_rows(bytes(data), [], from_offset=0, last_stable=9, end=9, limit=9)
    assert [row["problem"] is None for row in rows] == [False, True]


def test_record_text_of_a_long_value_is_cut_and_of_a_binary_value_is_hexadecimal() -> None:
    assert text(None) is None
    assert text(b"abc") == "abc"
    assert text(b"\xff\x00") == "0xff00"
    assert text(b"x" * 5_000) == "x" * 400 + "… (5000 bytes)"
    assert text("ä".encode() * 5_000) == "ä" * 400 + "… (10000 bytes)"

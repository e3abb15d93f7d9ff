"""Test where an output has the id of its input, and user functions that map outputs."""

from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.prove.relation import LogRecord, function, matcher

RECORD = LogRecord(
    "out", 0, 7, b"k-1", b'{"id": "v-1", "of": {"n": 12}, "list": [1]} x-9',
    (("trace", b"h-0"), ("trace", b"h-1"), ("none", None)),
)  # fmt: skip
JSON = LogRecord("out", 0, 8, None, b'{"id": "v-1", "of": {"n": 12}, "list": [1]}')


@pytest.mark.parametrize(
    ("how", "record", "found"),
    [
        ("key", RECORD, "k-1"),
        ("key", JSON, None),
        ("header:trace", RECORD, "h-1"),
        ("header:none", RECORD, None),
        ("header:other", RECORD, None),
        ("json:id", JSON, "v-1"),
        ("json:of.n", JSON, "12"),
        ("json:of", JSON, None),
        ("json:list", JSON, None),
        ("json:id.deeper", JSON, None),
        ("json:id", RECORD, None),  # no JSON
        (r"regex:x-\d", RECORD, "x-9"),
        (r"regex:x-(\d)", RECORD, "9"),
        (r"regex:y-\d", RECORD, None),
    ],
)
def test_output_id_is_read_from_the_field_of_the_match_option(
    how: str, record: LogRecord, found: str | None
) -> None:
    assert matcher(how)(record) == found


@pytest.mark.parametrize("how", ["", "value", "key:x", "header:", "json:", "regex:", "regex:("])
def test_match_option_that_is_malformed_is_refused(how: str) -> None:
    with pytest.raises(Failure) as refused:
        matcher(how)
    assert refused.value.exit_code == 2


def test_user_function_that_raises_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "theirs.py").write_text(
        "def later(records):\n    yield 'a'\n    raise KeyError('b')\ndef now(_): 1 / 0\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0")
    for name, words in (("later", "KeyError: 'b'"), ("now", "ZeroDivisionError: ")):
        with pytest.raises(Failure, match=f"--expect theirs:{name} failed: {words}") as told:
            function("--expect", f"theirs:{name}")([])
        assert told.value.exit_code == 2
    with pytest.raises(Failure, match="--expect broken:f: ZeroDivisionError") as told:
        function("--expect", "broken:f")
    assert told.value.exit_code == 2


def test_user_function_is_imported_by_its_module_name() -> None:
    assert function("--feed", "json:dumps")([1]) == "[1]"
    for wrong in ("json", "json:", "json:nothing", "no_such_module:f", "json:__name__"):
        with pytest.raises(Failure, match="--feed"):
            function("--feed", wrong)

"""Test records that are printed by an output template."""

import pytest

from oncelog.cli.records.template import compiled
from oncelog.client.consumer import ConsumerRecord
from oncelog.deploy.cluster.failure import Failure

RECORD = ConsumerRecord("t", 3, 17, 1_769_860_800_000, None, b"\xff\0", (("a", b"1"), ("a", None)))


def by(template: str) -> bytes:
    return compiled(template)(RECORD, (RECORD.key, RECORD.value))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%k %v %h %T %p %o", b" \xff\0 a=1,a= 1769860800000 3 17\n"),
        ("%t/%p %d", b"t/3 2026-01-31T12:00:00.000Z\n"),
        ("%K %V 100%%", b"-1 2 100%\n"),
        (r"%o\t%p", b"17\t3\n"),
        (r"%v\n", b"\xff\0\n"),
        (r"%v\0", b"\xff\0\0"),
        (r"%v\x1e", b"\xff\0\x1e"),
        (r"%v\c", b"\xff\0"),
        (r"\\%o", b"\\17\n"),
        ("ä\n", "ä\n\n".encode()),
        ("", b"\n"),
    ],
)
def test_output_template_of_each_field_writes_its_bytes(template: str, expected: bytes) -> None:
    assert by(template) == expected


@pytest.mark.parametrize("template", ["%x", "%", r"\q", "a\\", r"\x1"])
def test_output_template_with_an_unknown_field_is_refused(template: str) -> None:
    with pytest.raises(Failure, match=r"no (field|escape) of a template"):
        compiled(template)


def test_output_template_of_a_timestamp_beyond_the_calendar_writes_a_number() -> None:
    far = RECORD._replace(timestamp=2**62)
    assert compiled("%d")(far, (None, None)) == b"%d\n" % 2**62

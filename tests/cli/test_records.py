"""Test offsets, groups, templates and JSON of `oncelog produce` and `oncelog consume`."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.cli.main import run
from oncelog.deploy.cluster.local_cluster import Cluster

pytestmark = pytest.mark.cluster
EVENT_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a node with topic `numbers`, 10 records in partition 0 and 5 in partition 1."""
    with Cluster(1, data=tmp_path_factory.mktemp("cluster") / "data") as running:
        for topic in ("numbers", "odd", "copy", "plain"):
            running.ask(lambda a, t=topic: a.create_topic(t, partitions=2, replication_factor=1))
        lines = [
            {"partition": p, "value": str(n), "key": f"k{n}", "timestamp": EVENT_MS + n * 60_000}
            for p, count in ((0, 10), (1, 5))
            for n in range(count)
        ]
        file = running.data / "numbers.jsonl"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        assert called(running, "produce", "numbers", "--json", str(file)) == 0
        yield running


def called(cluster: Cluster, *arguments: str) -> int:
    return run([*arguments, "--data", str(cluster.data)])


@pytest.fixture
def consumed(cluster: Cluster, capsys: pytest.CaptureFixture[str]):
    """Return a function that runs `oncelog consume` and returns the lines that it prints."""

    def lines(*arguments: str) -> list[str]:
        capsys.readouterr()
        assert called(cluster, "consume", *arguments) == 0
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("numbers/0",), range(10)),
        (("numbers", "--partition", "1"), range(5)),
        (("numbers/0", "--offset", "7"), range(7, 10)),
        (("numbers/0", "--offset", "-3"), range(7, 10)),
        (("numbers/0", "--offset", "-99"), range(10)),
        (("numbers/0", "--offset", "10"), ()),
        (("numbers/0", "--offset", "latest"), ()),
        (("numbers/0", "--offset", "2026-01-31T12:06:00+00:00"), range(6, 10)),
        (("numbers/0", "--offset", f"@{EVENT_MS + 300_001}"), range(6, 10)),
        (("numbers/0", "--until", "4"), range(4)),
        (("numbers/0", "--until", "2026-01-31T12:02:00+00:00"), range(2)),
        (("numbers/0", "--offset", "2", "--until", "4"), range(2, 4)),
        (("numbers/0", "--until", "4", "-f"), range(4)),
        (("numbers/0", "-n", "2"), range(2)),
        (("numbers/0", "-n", "0"), ()),
        (("numbers/0", "--isolation", "read_committed", "--offset", "9"), (9,)),
    ],
)
def test_consume_from_a_start_to_an_end_prints_the_records_between(
    consumed, arguments, expected
) -> None:
    assert consumed(*arguments, "--template", "%v") == [str(n) for n in expected]


def test_consume_prints_the_same_columns_with_and_without_a_key(
    cluster, consumed, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb:c\n")
    for options in ((), ("--key-separator", ":")):
        assert called(cluster, "produce", "plain/0", str(lines), *options) == 0
    assert consumed("plain/0") == [
        "0@0\t(null)\ta", "0@1\t(null)\tb:c", "0@2\t(null)\ta", "0@3\tb\tc",
    ]  # fmt: skip


@pytest.mark.parametrize("place", ["numbers/0", "numbers"])
def test_consume_from_an_offset_out_of_range_is_refused(cluster, capsys, place: str) -> None:
    assert called(cluster, "consume", place, "--offset", "999999") == 1
    said = capsys.readouterr().err
    assert "numbers/0 has no offset 999999: it has offsets 0 to 9" in said


def test_consume_from_an_offset_reads_only_partitions_that_have_the_offset(cluster, capsys) -> None:
    assert called(cluster, "consume", "numbers", "--offset", "8", "--template", "%p@%o") == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == ["0@8", "0@9"]
    assert "numbers/1 has no offset 8: it has offsets 0 to 4; the other" in told.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("numbers/7",), 1, "numbers has partitions 0 to 1"),
        (("numbers/x",), 1, "names no partition"),
        (("nosuch",), 1, "nosuch"),
        (("numbers/0", "--partition", "1"), 2, "names a partition"),
        (("numbers", "--group", "g", "--offset", "5"), 2, "oncelog group reset"),
        (("numbers", "--template", "%v", "--format", "json"), 2, "two ways"),
        (("numbers", "--template", "%q"), 2, "no field"),
        (("numbers", "--decode", "avro", "--registry", ""), 2, "avro|Registry"),
        (("numbers/0", "--decode-key", "json"), 1, "The key of numbers/0 at offset 0 cannot"),
    ],
)
def test_consume_with_wrong_arguments_is_refused_with_a_clear_message(
    cluster, capsys, arguments, code, words
) -> None:
    assert called(cluster, "consume", *arguments) == code
    said = capsys.readouterr().err
    assert any(word in said for word in words.split("|")) and "Traceback" not in said


def test_consume_with_a_group_resumes_after_the_last_printed_record(consumed) -> None:
    for place, total in (("numbers/0", 10), ("numbers", 15)):
        options = ("--group", place.replace("/", "-"), "--template", "%p@%o")
        first = consumed(place, *options, "-n", "4")
        rest = consumed(place, *options)
        assert len(first) == 4 and len({*first, *rest}) == len(first) + len(rest) == total
        assert consumed(place, *options) == []


def test_consume_with_a_group_and_until_commits_the_until_offset(cluster, consumed) -> None:
    options = ("numbers/0", "--group", "until", "--template", "%o")
    assert consumed(*options, "--until", "3") == ["0", "1", "2"]
    assert consumed(*options) == [str(n) for n in range(3, 10)]


def test_consume_with_a_decode_option_prints_the_decoded_value(consumed) -> None:
    options = ("numbers/0", "-n", "1", "--offset", "9")
    assert consumed(*options, "--decode", "hex", "--template", "%k=%v") == ["k9=39"]
    (line,) = consumed(*options, "--decode", "json", "--format", "json")
    assert json.loads(line)["value"] == 9


ODD = [
    (b"k", b"plain", []),
    (None, b"\xff\x00\n\x80", [("h", b"\xfe"), ("h", None), ("", b"")]),
    (b"", None, []),
    (b"\xc3\x28", b"", [("ä", "ö".encode())]),
    ("ключ".encode(), b'{"a": 1}', []),
]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_consumed_as_json_and_produced_again_are_equal_byte_for_byte(
    cluster: Cluster, capsys, monkeypatch, compression: str
) -> None:
    start = sum(cluster.ask(ends_of("copy")).values())
    if not sum(cluster.ask(ends_of("odd")).values()):
        cluster.ask(write_odd)
    capsys.readouterr()
    assert called(cluster, "consume", "odd", "--format", "json") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == len(ODD)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out.encode())))
    assert called(cluster, "produce", "copy", "--json", "--compression", compression) == 0
    capsys.readouterr()
    assert called(cluster, "consume", "copy", "--format", "json", "--offset", f"-{len(ODD)}") == 0
    again = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    before = [json.loads(line) for line in out.splitlines()]
    for each in (*before, *again):
        del each["topic"], each["offset"]
    assert again[-len(ODD) :] == before
    assert sum(cluster.ask(ends_of("copy")).values()) == start + len(ODD)


def ends_of(topic: str):
    return lambda admin: admin.list_offsets({(topic, 0): -1, (topic, 1): -1})


async def write_odd(admin) -> None:
    from oncelog.client.producer import Producer

    async with Producer(admin.view) as producer:
        for number, (key, value, headers) in enumerate(ODD):
            await producer.send(
                "odd", value, key=key, partition=1, headers=headers, timestamp_ms=EVENT_MS + number
            )


def test_produce_of_a_whole_file_writes_one_record_with_the_given_key_headers_and_timestamp(
    cluster, consumed, tmp_path: Path
) -> None:
    file = tmp_path / "blob"
    file.write_bytes(b"two\nlines\n")
    options = ("--key", "k", "-H", "a=1", "-H", "a=2", "--timestamp", "2026-01-31T12:00:00+00:00")
    assert called(cluster, "produce", "plain/1", str(file), "--whole", *options) == 0
    (line,) = consumed("plain/1", "--format", "json")
    assert json.loads(line) == {
        "topic": "plain", "partition": 1, "offset": 0, "timestamp": EVENT_MS, "key": "k",
        "value": "two\nlines\n",
        "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--json", "--whole"), 2, "cannot be combined"),
        (("nosuch.txt",), 2, "nosuch.txt is not a file"),
        (("--timestamp", "soon"), 2, "neither milliseconds"),
        (("-H", "a"), 2, "key=value"),
        (("--partition", "9"), 1, "partitions 0..1"),
        (("--json",), 1, "-:2 is no record: it is no JSON"),
    ],
)
def test_produce_with_wrong_arguments_is_refused_with_a_clear_message(
    cluster, capsys, monkeypatch, arguments, code, words
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"value": "v"}\nline\n')))
    assert called(cluster, "produce", "copy", *arguments) == code
    assert words in capsys.readouterr().err

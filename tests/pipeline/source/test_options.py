"""Test the options of the source, and the messages about refused options."""

import pickle
from pathlib import Path

import pytest

from oncelog.pipeline.source.options import (
    DOCS,
    AtTime,
    OptionError,
    SourceOptions,
    Topics,
    Where,
    read_options,
)

BOOTSTRAP = {"kafka.bootstrap.servers": "h:1"}


def read(is_streaming: bool = True, **options: str) -> SourceOptions:
    given = {"subscribe": "t"} | options
    given = {name.replace("__", "."): value for name, value in given.items() if value}
    return read_options(BOOTSTRAP | given, is_streaming=is_streaming)


def test_source_option_defaults_equal_those_of_spark_except_read_committed() -> None:
    stream, batch = read(), read(is_streaming=False)
    assert (stream.starting, batch.starting, batch.ending) == (
        Where.LATEST,
        Where.EARLIEST,
        Where.LATEST,
    )
    assert stream.is_committed and stream.fail_on_data_loss
    assert stream.client == {"bootstrap.servers": "h:1"}


def test_source_option_names_are_case_insensitive() -> None:
    options = read(startingoffsets="earliest", MAXOFFSETSPERTRIGGER="7", includeheaders="TRUE")
    assert options.starting is Where.EARLIEST
    assert options.offsets_per_trigger_max == 7


def test_source_option_values_that_are_words_are_case_insensitive() -> None:
    options = read(startingOffsets="Earliest", startingOffsetsByTimestampStrategy="LATEST")
    assert options.starting is Where.EARLIEST
    assert not options.is_strict_about_times


def test_source_topics_are_chosen_by_names_partitions_or_pattern() -> None:
    assert read(subscribe=" b, a ,").topics == Topics(names=("a", "b"))
    assert read(subscribe="", path="a").topics == Topics(names=("a",))
    assigned = read(subscribe="", assign='{"a": [1, 0]}').topics
    assert assigned == Topics(partitions=(("a", 0), ("a", 1)))
    assert assigned.wants("a", 1) and not assigned.wants("a", 2)
    pattern = read(subscribe="", subscribePattern="fl.*").topics
    assert pattern.wants("flights", 3) and not pattern.wants("a-flight", 3)
    assert (pattern.named(), assigned.named()) == (frozenset(), {"a"})


@pytest.mark.parametrize("kind", ["names", "partitions"])
def test_source_topics_among_thousands_are_found_without_comparing_all_names(kind: str) -> None:
    """To compare each name with all topics at each trigger would take seconds."""
    looked_at = 0

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:  # also when a set is made
            nonlocal looked_at
            looked_at += 1
            return str.__hash__(self)

        def __eq__(self, other: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return str.__eq__(self, other)

    there = [(Name(f"topic-{number:05}"), 0) for number in range(2_000)]
    named = Topics(names=tuple(topic for topic, _ in there))
    topics = named if kind == "names" else Topics(partitions=tuple(there))
    assert all(topics.wants(str(topic), partition) for topic, partition in there)
    assert not topics.wants("other", 0)
    assert looked_at < 6 * len(there)


def test_source_topics_are_pickled_for_other_processes() -> None:
    topics = Topics(names=("a", "b"))
    assert topics.wants("a", 1)
    assert pickle.loads(pickle.dumps(topics)) == topics


def test_source_start_and_end_options_are_parsed_as_offsets_or_times() -> None:
    by_offset = read(startingOffsets='{"t": {"0": 5, "1": -2}}').starting
    assert by_offset == {("t", 0): 5, ("t", 1): -2}
    one_time = read(startingTimestamp="1000", startingOffsets="earliest").starting
    assert one_time == AtTime(1000), "a time comes before offsets, as in Spark"
    each = read(is_streaming=False, endingOffsetsByTimestamp='{"t": {"0": 9}}').ending
    assert each == AtTime({("t", 0): 9})


def test_source_kafka_options_are_passed_to_the_client() -> None:
    options = read(kafka__fetch__max__bytes="1000", kafka__isolation__level="read_uncommitted")
    assert options.client == {"bootstrap.servers": "h:1", "fetch.max.bytes": "1000"}
    assert not options.is_committed


def test_source_in_raw_mode_reads_uncommitted_records_and_needs_no_brokers_for_logs() -> None:
    assert not read(raw="true").is_committed
    options = read_options({"raw": "true", "logs": "1=/a, 2=/b"}, is_streaming=False)
    assert options.logs == {1: "/a", 2: "/b"}
    assert options.topics.wants("anything", 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": ""}, "say what to read by subscribe, assign or subscribePattern"),
        ({"assign": '{"t": [0]}'}, "not subscribe and assign"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"path": "u"}, r"the path in load\(\) is one topic, and subscribe names others"),
        ({"subscribe": "", "path": "u", "assign": '{"t": [0]}'}, "not subscribe and assign"),
        ({"subscribe": "", "assign": "t"}, "assign looks like"),
        ({"subscribe": "", "assign": '{"t": ["0"]}'}, "assign looks like"),
        ({"subscribe": "", "assign": "{}"}, "names no partition"),
        ({"subscribe": "", "subscribePattern": "("}, "is no pattern"),
        ({"startingOffset": "latest"}, "there is no option startingOffset; is startingOffsets"),
        ({"startingOffsets": "first"}, "startingOffsets looks like"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets looks like"),
        ({"startingOffsets": '{"t": {"x": 3}}'}, "startingOffsets looks like"),
        ({"startingOffsets": '{"t": [3]}'}, "startingOffsets looks like"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is a whole number"),
        ({"startingOffsetsByTimestampStrategy": "no"}, "is error or latest"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"startingTimestamp": "\u00b2"}, "startingTimestamp is a whole number"),
        ({"startingTimestamp": str(2**63)}, "startingTimestamp is a whole number"),
        ({"startingOffsetsByTimestamp": f'{{"t": {{"0": {2**63}}}}}'}, "ByTimestamp looks like"),
        ({"startingOffsets": '{"t": {"\u00b2": 3}}'}, "startingOffsets looks like"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number from 1 on"),
        ({"maxOffsetsPerTrigger": str(2**63)}, "from 1 on, up to 2\\^63-1, not"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is true or false, not 'no'"),
        ({"topic": "t"}, "topic is for writers"),
        ({"minOffsetsPerTrigger": "5"}, "is not served: Spark gives Python sources"),
        ({"kafka__group__id": "g"}, "is in no consumer group"),
        ({"kafka__isolation__level": "snapshot"}, "is read_committed or read_uncommitted"),
        ({"kafka__fetch__max__byte": "1"}, "no setting fetch.max.byte; is fetch.max.bytes meant"),
        ({"kafka__fetch__max__bytes": "much"}, "fetch.max.bytes"),
        ({"raw": "true", "kafka__isolation__level": "read_committed"}, "raw shows everything"),
        ({"logs": "1=/a"}, "say raw=true, too"),
        ({"logs": "1=/a", "raw": "true"}, "in batch only"),
        ({"logs": "/a", "raw": "true"}, "logs looks like 1=DIR"),
        ({"kafka__bootstrap__servers": "", "subscribe": "t"}, ""),
    ],
)
def test_source_option_that_is_invalid_or_would_be_ignored_is_refused(
    options: dict[str, str], said: str
) -> None:
    if not said:
        with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
            read_options({"subscribe": "t"}, is_streaming=True)
        return
    with pytest.raises(OptionError, match=said):
        read(True, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "a batch that begins at latest is empty"),
        ({"endingOffsets": "earliest"}, "a batch that ends at earliest is empty"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets looks like"),
    ],
)
def test_source_batch_that_could_only_be_empty_is_refused(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        read(is_streaming=False, **options)


def test_source_option_of_each_name_is_documented_with_its_description() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    for name, text in DOCS.items():
        assert f"| `{name}` | {text} |" in page, name


SECRETS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="geheim";',
    "kafka.ssl.keystore.certificate.chain": "certificate",
    "kafka.ssl.keystore.key": "geheim",
    "kafka.ssl.key.password": "geheim",
}


def test_source_options_printed_hide_secrets() -> None:
    options = read_options(BOOTSTRAP | SECRETS | {"subscribe": "t"}, is_streaming=True)
    assert "geheim" not in repr(options)
    assert options.client["sasl.jaas.config"].reveal().endswith('"geheim";')


def test_source_login_that_cannot_work_is_refused_at_the_start_of_the_query() -> None:
    for wrong, words in (
        ({"kafka.security.protocol": "PLAINTEXT"}, "has no effect"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "not supported"),
        ({"kafka.sasl.pasword": "geheim"}, "is sasl.password meant"),
    ):
        with pytest.raises(OptionError, match=words) as failure:
            read_options(BOOTSTRAP | SECRETS | wrong | {"subscribe": "t"}, is_streaming=True)
        assert "geheim" not in str(failure.value)

"""The options of `format("oncelog")`, parsed once and checked against each other.

The file does no I/O. Names are those of Spark's own Kafka source, in upper or lower case. A name
with the prefix `kafka.` is a setting of our client. An unsupported option is refused with a
message.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from ...client.security.config import security_config
from ...client.settings import consumer_settings, hidden_secrets
from ...wire.identifiers import TopicPartition

EARLIEST, LATEST = -2, -1
LONG_MAX = 2**63 - 1  # of offsets and times, and of Spark's limits
DOCS: Mapping[str, str] = {
    "kafka.bootstrap.servers": "host:port of some brokers, separated by commas",
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a regular expression (Python's) that must match whole topic names",
    "assign": 'partitions by topic: {"flights": [0, 1]}',
    "startingOffsets": "earliest, latest, or offsets by partition: "
    '{"flights": {"0": 23, "1": -2}}, where -2 is earliest and -1 is latest',
    "endingOffsets": "latest, or offsets by partition (batch only)",
    "startingTimestamp": "begin at the first record at or after this time, in ms",
    "endingTimestamp": "end before the first record at or after this time, in ms (batch only)",
    "startingOffsetsByTimestamp": 'times by partition: {"flights": {"0": 1577836800000}}',
    "endingOffsetsByTimestamp": "times by partition (batch only)",
    "startingOffsetsByTimestampStrategy": "error or latest, if no record is at or after the time",
    "failOnDataLoss": "true: stop if offsets to be read are gone; false: continue with a warning",
    "maxOffsetsPerTrigger": "the largest number of offsets in a micro-batch; "
    "markers and aborted records count",
    "minPartitions": "the smallest number of tasks; ranges of offsets are split",
    "maxRecordsPerPartition": "the largest number of offsets in a task; ranges are split",
    "includeHeaders": "true: add the column `headers`",
    "raw": "true: return every record and marker with its producer, for audits",
    "logs": "with raw: read log directories instead of a cluster: 1=DIR,2=DIR by node",
    "path": 'one topic, as in `load("flights")`',
    "topic": "for writers: the topic of rows without a column `topic`",
}
NOT_SERVED: Mapping[str, str] = {
    "minOffsetsPerTrigger": "Spark gives Python sources no such limit; use a longer trigger",
    "maxTriggerDelay": "it needs minOffsetsPerTrigger, which is not supported",
    "groupIdPrefix": "this source is in no consumer group: its offsets are in the checkpoint",
    "kafka.group.id": "this source is in no consumer group: its offsets are in the checkpoint",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets are in the checkpoint",
    "kafka.key.deserializer": "keys are bytes; cast the column",
    "kafka.value.deserializer": "values are bytes; cast the column",
    "kafka.interceptor.classes": "the source has no JVM",
}
SPARK_S_OWN = ("checkpointLocation", "queryName")  # options of streams, which Spark passes on
_KNOWN = {name.lower(): name for name in (*DOCS, *NOT_SERVED, *SPARK_S_OWN)}
Partitioned = Mapping[TopicPartition, int]


class OptionError(ValueError):
    """The error of an option, or of a request that the options lead to."""


class Where(Enum):
    """The begin or the end of every partition, as an option names it ("earliest" or "latest")."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, which is the same for all partitions or one for each."""

    times_ms: int | Partitioned


Place = Where | AtTime | Partitioned


@dataclass(frozen=True)
class Topics:
    """The topics to read, given by names, partitions, or a pattern.

    Exactly one of these is set. There may be thousands of topics.
    """

    names: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str = ""

    def wants(self, topic: str, partition: int, *, is_internal: bool = False) -> bool:
        """Return whether to read a partition. An internal topic is read only by its name."""
        if self.pattern:
            return not is_internal and re.fullmatch(self.pattern, topic) is not None
        return topic in self._names or (topic, partition) in self._partitions

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.partitions)

    def named(self) -> frozenset[str]:
        """Return the names of topics that must exist. With a pattern there are none."""
        return frozenset(self.names) | {topic for topic, _ in self.partitions}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of a reader, created by `read_options`."""

    client: Mapping[str, Any]  # settings of our client; secret values are Secret
    topics: Topics
    starting: Place
    ending: Place = Where.LATEST
    is_strict_about_times: bool = True
    fail_on_data_loss: bool = True
    offsets_per_trigger_max: int | None = None
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    is_raw: bool = False
    is_committed: bool = True
    logs: Mapping[int, str] = field(default_factory=dict[int, str])


def read_options(given: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Parse the options of a reader, or raise OptionError, which says what is wrong."""
    options = named_options(given)
    if "topic" in options:
        raise OptionError("topic is for writers; say what to read by subscribe")
    if path := options.pop("path", ""):
        if options.get("subscribe", path) != path:
            raise OptionError("the path in load() is one topic, and subscribe names others")
        options["subscribe"] = path
    raw = _flag(options, "raw", False)
    _flag(options, "includeHeaders", False)
    logs = _logs(options.get("logs", ""))
    if logs and not raw:
        raise OptionError("logs are read as they stand: say raw=true, too")
    if logs and is_streaming:
        raise OptionError("log directories are read in batch only")
    client = client_options(options)
    if not client.get("bootstrap.servers") and not logs:
        raise OptionError("kafka.bootstrap.servers is missing; it looks like host:port,host:port")
    isolation = client.pop("isolation.level", "read_uncommitted" if raw else "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise OptionError(
            f"kafka.isolation.level is read_committed or read_uncommitted, not {isolation!r}"
        )
    if not logs:
        _check_client(client)
    if raw and isolation == "read_committed":
        raise OptionError("raw shows everything there is; leave kafka.isolation.level out")
    if is_streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in options:
                raise OptionError(f"{name} is for batch queries; a stream has no end")
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}"
        )
    starting = _place(options, "starting", Where.LATEST if is_streaming else Where.EARLIEST)
    ending = _place(options, "ending", Where.LATEST)
    if starting is Where.LATEST and not is_streaming:
        raise OptionError("a batch that begins at latest is empty: say another startingOffsets")
    if ending is Where.EARLIEST:
        raise OptionError("a batch that ends at earliest is empty: say another endingOffsets")
    return SourceOptions(
        client=client,
        topics=_topics(options, may_be_all=bool(logs)),
        starting=starting,
        ending=ending,
        is_strict_about_times=strategy == "error",
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        offsets_per_trigger_max=_count(options, "maxOffsetsPerTrigger"),
        partitions_min=_count(options, "minPartitions"),
        records_per_partition_max=_count(options, "maxRecordsPerPartition"),
        is_raw=raw,
        is_committed=isolation == "read_committed",
        logs=logs,
    )


def named_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their canonical names. Refuse unknown options."""
    found: dict[str, str] = {}
    for name, value in given.items():
        known = _KNOWN.get(name.lower())
        if known is not None and known in NOT_SERVED:
            raise OptionError(f"the option {known} is not served: {NOT_SERVED[known]}")
        if known is None and not name.lower().startswith("kafka."):
            near = difflib.get_close_matches(name.lower(), _KNOWN, 1)
            hint = f"; is {_KNOWN[near[0]]} meant?" if near else ""
            raise OptionError(f"there is no option {name}{hint}")
        found[known or name.lower()] = value
    return found


def client_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options named `kafka.*`, without the prefix, with secret values as Secret."""
    prefix = "kafka."
    return hidden_secrets(
        {n.removeprefix(prefix): v for n, v in options.items() if n.startswith(prefix)}
    )


def _check_client(client: Mapping[str, Any]) -> None:
    """Raise OptionError for invalid settings of the client, before tasks would fail on them."""
    try:
        security_config(consumer_settings(client, {}))
    except ValueError as problem:
        raise OptionError(f"among the settings with kafka. in front: {problem}") from None


def _topics(options: Mapping[str, str], *, may_be_all: bool) -> Topics:
    said = [name for name in ("subscribe", "assign", "subscribePattern") if options.get(name)]
    if not said and may_be_all:
        return Topics(pattern=".*")
    if len(said) != 1:
        both = f", not {' and '.join(said)}" if said else ""
        raise OptionError(f"say what to read by subscribe, assign or subscribePattern{both}")
    text = options[said[0]]
    if said == ["subscribe"]:
        names = {name.strip() for name in text.split(",")} - {""}
        if not names:
            raise OptionError(f"subscribe names no topic: {text!r}")
        return Topics(names=tuple(sorted(names)))
    if said == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as problem:
            raise OptionError(f"subscribePattern {text!r} is no pattern: {problem}") from None
        return Topics(pattern=text)
    listed = _json("assign", text, '{"flights": [0, 1]}')
    pairs: set[TopicPartition] = set()
    for topic, numbers in listed.items():
        if not isinstance(numbers, list) or not all(_is_count(n) for n in numbers):  # type: ignore[reportUnknownVariableType]
            raise OptionError(f'assign looks like {{"flights": [0, 1]}}, not {text}')
        pairs |= {(topic, number) for number in numbers}  # type: ignore[reportUnknownVariableType]
    if not pairs:
        raise OptionError("assign names no partition")
    return Topics(partitions=tuple(sorted(pairs)))


def _place(options: Mapping[str, str], side: str, default: Where) -> Place:
    """Return where to begin ("starting") or end ("ending"), by the first option that is given.

    The order is Spark's: a time, times by partition, offsets.
    """
    if time := options.get(f"{side}Timestamp"):
        return AtTime(_number(f"{side}Timestamp", time))
    if times := options.get(f"{side}OffsetsByTimestamp"):
        return AtTime(_partitioned(f"{side}OffsetsByTimestamp", times, least=0))
    text = options.get(f"{side}Offsets")
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        return Where(text.lower())
    least = EARLIEST if side == "starting" else LATEST
    return _partitioned(f"{side}Offsets", text, least=least)


def _partitioned(name: str, text: str, *, least: int) -> Partitioned:
    shape = '{"flights": {"0": 23, "1": 42}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(name, text, shape).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"{name} looks like {shape}, not {text}")
        each: dict[Any, Any] = numbers  # type: ignore[reportUnknownVariableType]
        for partition, number in each.items():
            if not str(partition).isdecimal() or not _is_count(number, least):
                raise OptionError(f"{name} looks like {shape}, not {text}")
            found[(topic, int(partition))] = number
    return found


def _json(name: str, text: str, shape: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OptionError(f"{name} looks like {shape}, not {text}")
    return value  # type: ignore[reportUnknownVariableType]


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LONG_MAX


def _number(name: str, text: str, least: int = 0) -> int:
    if not text.strip().isdecimal() or not _is_count(int(text), least):
        raise OptionError(
            f"{name} is a whole number from {least} on, up to 2^63-1, not {text[:30]!r}"
        )
    return int(text)


def _count(options: Mapping[str, str], name: str) -> int | None:
    return _number(name, options[name], 1) if name in options else None


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {options[name]!r}")
    return text == "true"


def _logs(text: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        node, separator, folder = item.partition("=")
        if not separator or not node.strip().isdigit() or not folder.strip():
            raise OptionError(f"logs looks like 1=DIR,2=DIR (node and its folder), not {text!r}")
        found[int(node)] = folder.strip()
    return found

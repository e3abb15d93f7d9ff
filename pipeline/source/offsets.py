"""The offsets that a micro-batch reads, with positions, limits, ranges, and the losses to report.

The file does no I/O. A `Position` is the next offset to read in every partition, with the id of
every topic, as it is in Spark's checkpoint. A position in the checkpoint is read exactly, or the
query stops. Below the last stable offset a log never changes, so a repeated read of a range gives
the same rows. There are three exceptions, and each is reported. A topic was deleted and created
again (the ids differ). Retention has removed offsets. A log ends before the offsets that were
already read.

Spark stores the begin of a query only when its first batch is complete, and asks for the begin
again whenever needed. "latest" would then be another offset, and the records in between would be
lost. Therefore the end of the first batch contains the begin of the query.

Offsets are counted, not records, because transaction markers and aborted records have offsets, too.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...wire.identifiers import TopicPartition
from .options import EARLIEST, LATEST, AtTime, OptionError, Place, Where

VERSION = 1
NO_TOPIC_ID = ""  # in clusters before KIP-516
# called with a sentence about a loss; raises if losses stop the query
Report = Callable[[str], None]


class DataLost(RuntimeError):
    """The error of lost records.

    The text names the records and the possible remedies.
    """


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset of every partition, and the id (hex) of every topic.

    is_initial: this is the begin of the query. since: the begin of the query, set only in the
    position at the end of its first batch.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    is_initial: bool = False
    since: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the position for Spark's checkpoint. Equal positions give equal JSON texts."""
        topics: dict[str, Any] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            entry = topics.setdefault(
                topic, {"id": self.topic_ids.get(topic, NO_TOPIC_ID), "offsets": {}}
            )
            entry["offsets"][str(partition)] = offset
            if self.since is not None and (topic, partition) in self.since:
                entry.setdefault("since", {})[str(partition)] = self.since[(topic, partition)]
        value: dict[str, Any] = {"version": VERSION, "topics": topics}
        return value | {"initial": True} if self.is_initial else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Position":
        """Read a position from a checkpoint. Raises OptionError if it is none of this source."""
        if value.get("version") != VERSION or not isinstance(value.get("topics"), dict):
            raise OptionError(
                "the checkpoint does not hold offsets of this source (its offsets look like "
                f"{str(value)[:80]}): use another checkpointLocation"
            )
        offsets: dict[TopicPartition, int] = {}
        since: dict[TopicPartition, int] = {}
        topic_ids: dict[str, str] = {}
        for topic, entry in value["topics"].items():
            topic_ids[topic] = entry["id"]
            for found, listed in ((offsets, entry["offsets"]), (since, entry.get("since", {}))):
                for partition, offset in listed.items():
                    found[(topic, int(partition))] = int(offset)
        return cls(offsets, topic_ids, bool(value.get("initial")), since or None)

    def before(self, end: "Position") -> "Position":
        """Return the begin of the batch that Spark asks for as `self` to `end`.

        Only in the first batch `self` may be wrong, because Spark asks for the query's begin again,
        and "latest" has moved. The begin that `end` contains then counts.
        """
        if not self.is_initial or end.since is None:
            return self
        return Position(end.since, end.topic_ids)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The readable offsets of a partition, from log_start_offset up to, not including, `end`.

    end: the last stable offset for readers of committed records, else the high watermark.
    """

    log_start_offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Known:
    """The partitions to read, as one answer of the cluster described them."""

    bounds: Mapping[TopicPartition, LogBounds]
    topic_ids: Mapping[str, str]

    def at(self, offsets: Mapping[TopicPartition, int]) -> Position:
        """Return a position with these offsets and the ids of their topics."""
        topics = {topic for topic, _ in offsets}
        ids = {t: self.topic_ids.get(t, NO_TOPIC_ID) for t in sorted(topics)}
        return Position(dict(sorted(offsets.items())), ids)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = NO_TOPIC_ID

    @property
    def size(self) -> int:
        return self.end - self.start


def resolve(
    place: Place,
    known: Known,
    by_time: Mapping[TopicPartition, int],
    *,
    name: str,
    is_strict_about_times: bool,
    report: Report,
) -> Position:
    """Return where a reader begins or ends in each partition.

    by_time: the offsets for the times of an AtTime. A missing offset is the end, or with
    is_strict_about_times an OptionError. name: the name of the option, for messages.
    """
    found: dict[TopicPartition, int] = {}
    if not isinstance(place, Where | AtTime):
        _check_names(place, known, name)
    for key, bounds in known.bounds.items():
        if place is Where.EARLIEST:
            found[key] = bounds.log_start_offset
        elif place is Where.LATEST:
            found[key] = bounds.end
        elif isinstance(place, AtTime):
            offset = by_time.get(key, LATEST)
            if offset == LATEST and is_strict_about_times:
                raise OptionError(
                    f"{name}: {_named(key)} has no record at or after that time; with "
                    "startingOffsetsByTimestampStrategy=latest it begins at the end"
                )
            found[key] = bounds.end if offset == LATEST else min(offset, bounds.end)
        else:
            found[key] = _by_offset(place[key], key, bounds, name, report)
    return known.at(found)


def _check_names(place: Mapping[TopicPartition, int], known: Known, name: str) -> None:
    if missing := sorted(known.bounds.keys() - place.keys()):
        raise OptionError(f"{name} says nothing about {_listed(missing)}; -2 there means earliest")
    if unknown := sorted(place.keys() - known.bounds.keys()):
        raise OptionError(f"{name} speaks of {_listed(unknown)}, which is not read here")


def _by_offset(
    offset: int, key: TopicPartition, bounds: LogBounds, name: str, report: Report
) -> int:
    if offset == EARLIEST:
        return bounds.log_start_offset
    if offset == LATEST:
        return bounds.end
    if offset > bounds.end:
        raise OptionError(
            f"{name}: {_named(key)} has no offset {offset} yet, it ends at {bounds.end}"
        )
    if offset < bounds.log_start_offset:
        report(f"{name}: {_named(key)} begins at {bounds.log_start_offset}, not at {offset}")
        return bounds.log_start_offset
    return offset


def check_identity(start: Position, known: Known) -> None:
    """Raise DataLost if a topic has another id, because its offsets then mean other records."""
    for topic, was in start.topic_ids.items():
        now = known.topic_ids.get(topic, NO_TOPIC_ID)
        if NO_TOPIC_ID not in (was, now) and was != now:
            raise DataLost(
                f"topic {topic} was deleted and made anew (its id was {was}, now it is {now}), so "
                "the offsets in the checkpoint mean nothing: begin with another checkpointLocation"
            )


def losses(start: Position, known: Known) -> dict[TopicPartition, str]:
    """Return a sentence for each partition that is missing, or ends before the position `start`.

    Either may happen for a short time without a loss of records. A broker with old metadata does
    not know a partition, and a new leader does not know the high watermark yet.
    """
    found: dict[TopicPartition, str] = {}
    for key, offset in sorted(start.offsets.items()):
        bounds = known.bounds.get(key)
        if bounds is None:
            found[key] = f"{_named(key)} was being read and is no longer there"
        elif bounds.end < offset:
            found[key] = (
                f"{_named(key)} ends at {bounds.end}, and offsets up to {offset - 1} were read "
                "before: its log was cut"
            )
    return found


def latest(
    start: Position,
    known: Known,
    *,
    offsets_max: int | None = None,
    until: Position | None = None,
) -> Position:
    """Return the end of the next micro-batch, or `start` itself when there is nothing to read.

    New partitions begin at 0. A partition that is missing for a while keeps its offset, since it is
    not new when it returns. until: the end of AvailableNow. A partition that is missing in it is
    not read. offsets_max: the limit that the partitions share in proportion to their readable
    offsets. Offsets that retention has removed do not count, because a batch of removed offsets
    would be empty, and the query would never catch up with retention.
    """
    ends: dict[TopicPartition, int] = {}
    for key, bounds in known.bounds.items():
        begin = start.offsets.get(key)
        end = bounds.end
        if until is not None:
            if begin is None and key not in until.offsets:
                continue
            end = min(end, until.offsets.get(key, 0))
        ends[key] = max(end, begin or 0)
    if offsets_max is not None:
        firsts = {
            key: min(end, max(start.offsets.get(key, 0), known.bounds[key].log_start_offset))
            for key, end in ends.items()
        }
        backlog = {key: end - firsts[key] for key, end in ends.items()}
        for key, count in share_out(backlog, offsets_max).items():
            ends[key] = firsts[key] + count
    ends = {**start.offsets, **ends}
    if ends == start.offsets:
        return start
    end = known.at(ends)
    known_ids = {topic: topic_id for topic, topic_id in end.topic_ids.items() if topic_id}
    end = replace(end, topic_ids={**end.topic_ids, **start.topic_ids, **known_ids})
    if not start.is_initial:
        return end
    return replace(end, since={key: start.offsets.get(key, 0) for key in end.offsets})


def not_before(until: Position, begin: Position, known: Known) -> Position:
    """Return the end of AvailableNow, where it must not be before the batch's begin.

    A broker with old metadata may have reported too small an end for a partition, or none. Such a
    partition ends at its current end. Otherwise the run would finish without reading it.
    """
    late = {
        key: bounds.end
        for key, bounds in known.bounds.items()
        if key in begin.offsets and until.offsets.get(key, -1) < begin.offsets[key]
    }
    return known.at({**until.offsets, **late}) if late else until


def share_out(backlog: Mapping[TopicPartition, int], count_max: int) -> dict[TopicPartition, int]:
    """Divide count_max offsets (or all, if there are fewer) among partitions in proportion to
    `backlog`.

    Each partition with a backlog gets at least one offset, even beyond count_max. Otherwise a quiet
    partition would wait for as long as a busy partition is behind.
    """
    shares = {key: min(count, 1) for key, count in backlog.items()}
    spare = max(0, count_max - sum(shares.values()))
    rest = sum(backlog.values()) - sum(shares.values())
    if rest <= spare:
        return dict(backlog)
    parts = {key: (count - shares[key]) * spare for key, count in backlog.items()}
    for key, part in parts.items():
        shares[key] += part // rest
    left = max(0, count_max - sum(shares.values()))
    for key in sorted(parts, key=lambda key: (-(parts[key] % rest), key))[:left]:
        shares[key] += 1
    return shares


def ranges_between(
    start: Position, end: Position, known: Known, report: Report
) -> list[OffsetRange]:
    """Return the ranges that a micro-batch reads, without empty ranges.

    Offsets removed by retention are passed to `report`, which raises DataLost if the query must
    fail. Otherwise the remaining offsets are read.
    """
    found: list[OffsetRange] = []
    for (topic, partition), stop in sorted(end.offsets.items()):
        key = (topic, partition)
        begin = start.offsets.get(key, 0)
        if stop <= begin:
            continue
        bounds = known.bounds.get(key)
        if bounds is None:
            report(
                f"{_named(key)} is no longer there; offsets {begin} to {stop - 1} were to be read"
            )
            continue
        if begin < bounds.log_start_offset:
            new = "" if key in start.offsets else " (a partition that is new to this query)"
            report(
                f"{_named(key)}: offsets {begin} to {min(stop, bounds.log_start_offset) - 1} are "
                f"gone, the log begins at {bounds.log_start_offset}{new}; raise retention.ms or "
                "retention.bytes, or read more often"
            )
            begin = bounds.log_start_offset
        if begin < stop:
            topic_id = end.topic_ids.get(topic, NO_TOPIC_ID)
            found.append(OffsetRange(topic, partition, begin, stop, topic_id))
    return found


def split(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Split ranges into at least partitions_min, and none with more than records_max offsets.

    There are fewer than partitions_min ranges only if there are fewer offsets.
    """
    listed = list(ranges)
    total = sum(each.size for each in listed)
    found: list[OffsetRange] = []
    for each in listed:
        pieces = 1
        if partitions_min is not None and partitions_min > len(listed):
            pieces = -(-each.size * partitions_min // total)
        if records_max is not None:
            pieces = max(pieces, -(-each.size // records_max))
        found += _cut(each, min(pieces, each.size))
    return found


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    cuts = [whole.start + whole.size * i // pieces for i in range(pieces + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, begin, end, whole.topic_id)
        for begin, end in itertools.pairwise(cuts)
    ]


def _named(key: TopicPartition) -> str:
    return f"{key[0]}/{key[1]}"


def _listed(keys: list[TopicPartition]) -> str:
    shown = ", ".join(_named(key) for key in keys[:5])
    return shown if len(keys) <= 5 else f"{shown} and {len(keys) - 5} more"

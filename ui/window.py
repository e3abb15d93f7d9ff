"""The time range that the timeline shows, without I/O except for the local time zone."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTES = (1, 2, 5, 15, 60)
MINUTE_MS = 60_000
YEAR_9999_MS = 253_370_764_800_000
DAY_FORMS, CLOCK_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"), ("%H:%M:%S", "%H:%M")


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A time range. Its length is `minutes`, and its ends are wall-clock ms."""

    start_ms: int
    minutes: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.minutes * MINUTE_MS

    @classmethod
    def asked(cls, query: Mapping[str, str], now_ms: int) -> "TimeWindow | None":
        """Return the time range of `at` and `minutes` in a query, or None without both.

        The range has its middle at `at`, and without `at` it ends at `now_ms`. Raises ValueError
        with a message for invalid values.
        """
        at, span = query.get("at", "").strip(), query.get("minutes", "").strip()
        if not at and not span:
            return None
        if span and span not in map(str, MINUTES):
            raise ValueError(f"minutes is one of {', '.join(map(str, MINUTES))}, not {span[:40]!r}")
        minutes = int(span or 5)
        if not at:
            return cls(now_ms - minutes * MINUTE_MS, minutes)
        start_ms = _moment_ms(at, now_ms) - minutes * MINUTE_MS // 2
        if not 0 <= start_ms < YEAR_9999_MS:
            raise ValueError("at is a time from 1970 on, up to the year 9998")
        return cls(start_ms, minutes)


def day_time_ms(text: str) -> int | None:
    """Return the wall-clock ms of a local date and time in a browser's format.

    Returns None if `text` has another format.
    """
    for form in DAY_FORMS:
        try:
            return _in_ms(datetime.strptime(text.strip(), form))
        except (ValueError, OverflowError):
            continue
    return None


def _moment_ms(text: str, now_ms: int) -> int:
    """Return the wall-clock ms of a date and time, or of the last occurrence of a time of day.

    Raises ValueError with a message for other text.
    """
    found = day_time_ms(text)
    if found is not None:
        return found
    now = datetime.fromtimestamp(now_ms / 1000)
    for form in CLOCK_FORMS:
        try:
            clock = datetime.strptime(text, form).time()
        except ValueError:
            continue
        today = datetime.combine(now.date(), clock)
        return _in_ms(today if today <= now else today - timedelta(days=1))
    raise ValueError(f"at looks like 14:03 or 2026-01-31T14:03, not {text[:40]!r}")


def _in_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)

"""The rate of a client over the last samples, and its throttle time, computed as in Kafka.

A sample collects the values of its window, and samples with a value in the last `samples` windows
count. As in Kafka, the elapsed time counts as at least `samples` - 1 windows, so that a new client
is not throttled for its first bytes.
"""

from dataclasses import dataclass

THROTTLE_MS_MAX = 2**31 - 1  # the maximum value of the field in an answer


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class QuotaRate:
    """The measured rate of one client, or of all clients that share a quota."""

    def __init__(self, *, samples: int, window_ms: int) -> None:
        self._count, self._window_ms = samples, window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, limit: float, now_ms: int) -> int:
        """Add a value to the rate.

        Return the milliseconds for which the client must wait until its rate is within `limit`.
        """
        sample = self._sample_of(now_ms)
        sample.value += value
        sample.last_ms = now_ms
        self._purge(now_ms)
        window_ms = self._elapsed_ms(now_ms)
        rate = sum(each.value for each in self._samples) * 1000 / window_ms
        if rate <= limit:
            return 0
        return round(min(THROTTLE_MS_MAX, (rate - limit) / limit * window_ms))

    def _sample_of(self, now_ms: int) -> _Sample:
        if not self._samples:
            self._samples.append(_Sample(now_ms, now_ms))
        current = self._samples[self._current]
        if now_ms - current.start_ms < self._window_ms:
            return current
        self._current = (self._current + 1) % (self._count + 1)
        fresh = _Sample(now_ms, now_ms)
        if self._current == len(self._samples):
            self._samples.append(fresh)
        else:
            self._samples[self._current] = fresh
        return fresh

    def _purge(self, now_ms: int) -> None:
        expire_ms = self._count * self._window_ms
        for place, sample in enumerate(self._samples):
            if now_ms - sample.last_ms >= expire_ms:
                self._samples[place] = _Sample(now_ms, now_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        missing = self._count - 1 - elapsed_ms // self._window_ms
        return max(1, elapsed_ms + max(0, missing) * self._window_ms)

"""Rate-limited log lines, so that a client or a full disk cannot fill the log."""

import logging

LINES_PER_PERIOD = 10
PERIOD_S = 60.0


class LimitedLog:
    """A log of ten lines of each kind per minute.

    The number of omitted lines is logged before the first line of a later minute.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: dict[str, int] = {}
        self._period_began_s = 0.0

    def log(
        self,
        level: int,
        kind: str,
        now_s: float,
        message: str,
        *arguments: object,
        error: BaseException | None = None,
    ) -> None:
        """Log a line of this kind unless its limit is reached. `now_s` is monotonic.

        error: the exception, whose traceback is part of the line.
        """
        if now_s - self._period_began_s >= PERIOD_S:
            self._begin_period(now_s)
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= LINES_PER_PERIOD:
            self._log.log(level, message, *arguments, exc_info=error)

    def _begin_period(self, now_s: float) -> None:
        for kind, count in self._counts.items():
            if count > LINES_PER_PERIOD:
                self._log.info(
                    "%s: %d more lines of this kind were not logged", kind, count - LINES_PER_PERIOD
                )
        self._counts.clear()
        self._period_began_s = now_s

"""Events of a broker, as log lines with machine-readable terms, in limited numbers.

A line is `KIND {terms as JSON} SENTENCE`. Only a change of the cluster's state is an event, not a
record or a batch. A client can cause events (for example by repeated fencing). Therefore the number
of lines per kind and period is limited, and the number per subject, too. A line at the end of the
period has the number of omitted lines. All events are counted.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence

Term = str | int | bool | Sequence[int] | None

LOGGER = "oncelog.events"
EVENTS_PER_PERIOD = 100  # the limit for a kind
ALIKE_PER_PERIOD = 5  # the limit for a kind, a reason and a subject
PERIOD_S = 10.0
TEXT_MAX = 200  # the limit for a term, since clients choose names of up to 32 kB
ITEMS_MAX = 20
SENTENCE_MAX = 1_000


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


class EventLog:
    """The events of one broker.

    `now_s` is a monotonic clock, by default the clock of the event loop.
    """

    def __init__(self, now_s: Callable[[], float] = _loop_s) -> None:
        self.counts = Counter[tuple[str, str]]()
        self._now_s = now_s
        self._log = logging.getLogger(LOGGER)
        self._period_began_s = float("-inf")
        self._written = Counter[str]()
        self._left_out = Counter[str]()
        self._alike = Counter[tuple[str, str, str]]()

    def tell(self, kind: str, subject: str, reason: str, sentence: str, **terms: Term) -> None:
        """Write an event, unless the limit for its kind or its subject is reached in this period.

        kind, reason: one of a few fixed words. subject: the changed object, such as a transactional
        id.
        """
        self.counts[kind, reason] += 1
        if self._now_s() - self._period_began_s >= PERIOD_S:
            self._begin_period()
        subject = subject[:TEXT_MAX]
        alike = kind, reason, subject
        if self._written[kind] >= EVENTS_PER_PERIOD or self._alike[alike] >= ALIKE_PER_PERIOD:
            self._leave_out(kind)
            return
        self._written[kind] += 1
        self._alike[alike] += 1
        self._write(kind, sentence, {"subject": subject, "reason": reason, **terms})

    def _leave_out(self, kind: str) -> None:
        if not self._left_out:
            left_s = self._period_began_s + PERIOD_S - self._now_s()
            asyncio.get_running_loop().call_later(max(0.0, left_s), self._sum_up)
        self._left_out[kind] += 1

    def _begin_period(self) -> None:
        self._sum_up()
        self._period_began_s = self._now_s()
        self._written.clear()
        self._alike.clear()

    def _sum_up(self) -> None:
        for kind, count in self._left_out.items():
            words = f"{count} more events of this kind within {PERIOD_S:.0f} s were not written"
            self._write(kind, words, {"reason": "left out", "left_out": count})
        self._left_out.clear()

    def _write(self, kind: str, sentence: str, terms: dict[str, Term]) -> None:
        short = {name: _short(value) for name, value in terms.items()}
        sentence = sentence[:SENTENCE_MAX]
        event = {"event": kind, "terms": short, "sentence": sentence}
        self._log.info("%s %s %s", kind, json.dumps(short), sentence, extra=event)


def _short(value: Term) -> Term:
    if isinstance(value, str):
        return value[:TEXT_MAX]
    if isinstance(value, Sequence):
        return list(value[:ITEMS_MAX])
    return value

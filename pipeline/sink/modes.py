"""The modes of a sink, the choice between them, and the sentence about their guarantee.

The file does no I/O. Two modes are always exact. In "prepared" every task writes by itself, and in
"driver" one process writes all rows. "transactional" writes like "prepared", but in ordinary
transactions, which the cluster aborts after a timeout. It is exact as long as no outage is longer
than the timeout.

"auto" chooses only between the first two, by the brokers' answers. "transactional" must be chosen
by name, because a setting that is lost in an upgrade of the brokers must not weaken the guarantee.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .stop_words import SinkStopped

AUTO = "auto"
TIMEOUT_MAX = "transaction.max.timeout.ms"
CONTROL_TIMEOUT_MS = 60_000  # of the transaction that holds a decision
DRIVER_TIMEOUT_MS = 600_000  # of the one that also holds a whole batch


class Mode(Enum):
    PREPARED = "prepared"
    TRANSACTIONAL = "transactional"
    DRIVER = "driver"

    @classmethod
    def named(cls, name: str | None) -> "Mode | None":
        """Return the mode of a name, or None for "auto". Raises ValueError for another name."""
        if name in (None, AUTO):
            return None
        if name not in MODE_NAMES:
            raise ValueError(f"mode={name!r} is none of {', '.join(MODE_NAMES)}")
        return cls(name)


MODE_NAMES = (*(mode.value for mode in Mode), AUTO)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAnswers:
    """The brokers' settings that decide which modes are possible.

    lacking: for each setting that prepared transactions need, the nodes without it. timeout_max_ms:
    the longest transaction timeout by node. unseen: nodes with configurations that may not be read.
    """

    lacking: Mapping[str, list[int]] = field(default_factory=dict[str, list[int]])
    timeout_max_ms: Mapping[int, int] = field(default_factory=dict[int, int])
    unseen: tuple[int, ...] = ()

    @property
    def missing(self) -> str:
        """Return text with the missing settings and their brokers."""
        return "; ".join(
            f"{setting} on broker {', '.join(map(str, nodes))}"
            for setting, nodes in self.lacking.items()
        )

    def require_prepared(self) -> None:
        """Raise SinkStopped when some broker serves no prepared transactions."""
        if self.lacking:
            raise SinkStopped(
                "This cluster does not serve prepared transactions (KIP-939: InitProducerId 6 with "
                'Enable2Pc), which mode="prepared" needs. Apache Kafka 4.3 serves them with these '
                f"settings, which are missing: {self.missing}. Set them in server.properties and "
                'restart, or choose a mode that needs neither: mode="driver", as exact, where all '
                'rows go through the driver; or mode="transactional", where tasks write by '
                "themselves, exact as long as no outage is longer than the brokers' "
                f"{TIMEOUT_MAX}."
            )

    def require_timeout(self, timeout_ms: int, name: str) -> None:
        """Raise SinkStopped if some broker's limit is below this transaction timeout.

        name: the setting with the timeout, for the message.
        """
        for node_id, most in self.timeout_max_ms.items():
            if timeout_ms > most:
                raise SinkStopped(
                    f"{name}={timeout_ms} is above {TIMEOUT_MAX}={most} of broker {node_id}. A "
                    "batch that takes longer than its transaction may is aborted and written "
                    f"again. Lower the one, or raise {TIMEOUT_MAX} on all brokers."
                )


def choose_mode(wanted: Mode | None, answers: BrokerAnswers) -> Mode:
    """Return the wanted mode, or for "auto" the best mode that is always exact."""
    if wanted is not None:
        return wanted
    return Mode.DRIVER if answers.lacking or answers.unseen else Mode.PREPARED


def mode_in_words(
    sink_id: str, wanted: Mode | None, mode: Mode, answers: BrokerAnswers, timeout_ms: int
) -> str:
    """Describe the mode at the start of a query. `timeout_ms` limits the duration of a batch."""
    said = f'sink {sink_id} writes with mode="{mode.value}"'
    if mode is Mode.TRANSACTIONAL:
        return (
            f"{said}: exact as long as no batch, and no outage of driver or brokers in the middle "
            f"of one, is longer than {timeout_ms / 1000:g} s (transaction.timeout.ms; brokers have "
            f"{TIMEOUT_MAX})"
        )
    if wanted is None and mode is Mode.DRIVER:
        why = (
            f"brokers lack {answers.missing}"
            if answers.lacking
            else ("the configuration of brokers may not be seen (DescribeConfigs of the cluster)")
        )
        return (
            f"{said}, all rows of a batch through the driver, within {timeout_ms / 1000:g} s, "
            f'since {why}; mode="transactional" would write from tasks, exact as long as no outage '
            f"is longer than {TIMEOUT_MAX}"
        )
    return f"{said}: exact whatever happens"

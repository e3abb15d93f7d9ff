"""The levels of this process's loggers (KIP-412), with Kafka's names of the levels.

The levels are not part of the metadata, and are lost when the process ends. A level without a name
in Python is written to the log as a number.
"""

import logging
from collections.abc import Iterator, Sequence
from itertools import islice

from ....coordinator.metadata.commands import APPEND, DELETE, SET, ConfigOperation
from ....wire.errors import InvalidConfig, InvalidRequest

LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
ROOT = "root"
LOGGERS_MAX = 1_000


def logger_levels() -> Iterator[tuple[str, str]]:
    """Yield the name and the effective level of the root logger, then of other loggers by name.

    At most LOGGERS_MAX other loggers are included.
    """
    yield ROOT, _name_of(logging.root.getEffectiveLevel())
    for name in islice(sorted(_loggers()), LOGGERS_MAX):
        yield name, _name_of(logging.getLogger(name).getEffectiveLevel())


def logger_count() -> int:
    """Return an upper bound of the number of loggers."""
    return min(LOGGERS_MAX, len(logging.root.manager.loggerDict)) + 1


def _loggers() -> list[str]:
    known = list(logging.root.manager.loggerDict.items())
    return [name for name, logger in known if isinstance(logger, logging.Logger)]


def _name_of(level: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if level >= least), "TRACE")


def alter_logger_levels(operations: Sequence[ConfigOperation], *, validate_only: bool) -> None:
    """Set the level of each logger, or remove it so that the level of the logger's parent applies.

    A request changes all of its loggers or none.
    """
    loggers = [(_checked(each), each) for each in operations]
    if validate_only:
        return
    for logger, each in loggers:
        logger.setLevel(LEVELS[each.value or ""] if each.operation == SET else logging.NOTSET)


def _checked(operation: ConfigOperation) -> logging.Logger:
    name, what = operation.key, operation.operation
    if what not in (SET, DELETE):
        word = "APPEND" if what == APPEND else "SUBTRACT"
        raise InvalidRequest(f"{word} operation is not allowed for the BROKER_LOGGER resource")
    logger = logging.root if name == ROOT else logging.root.manager.loggerDict.get(name)
    if not isinstance(logger, logging.Logger):
        raise InvalidConfig(f"Logger {name} does not exist!")
    if what == SET and operation.value not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {operation.value} as it is not a supported "
            f"log level. Valid log levels are {', '.join(sorted(LEVELS))}"
        )
    if what == DELETE and logger is logging.root:
        raise InvalidRequest(f"Removing the log level of the {ROOT} logger is not allowed")
    return logger

"""The format of node.log, with one line for each message as text or JSON, and its log levels."""

import json
import logging
from typing import Any

from ..wire.printable import printable

INDENT = "  "  # for the lines below a message, which itself never begins with a space


class PrintableFormatter(logging.Formatter):
    """A formatter that escapes control characters and line ends, and indents tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(INDENT + printable(line, keep="\t") for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """A formatter that writes one JSON object a line, in ASCII, with the fields of an event."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at_ms": int(record.created * 1_000),
            "level": record.levelname,
            "logger": record.name,
        }
        if (event := getattr(record, "event", None)) is not None:
            line |= {"event": event, "terms": getattr(record, "terms", {})}
            line["message"] = getattr(record, "sentence", "")
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
FORMATS = ("text", "json")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def set_format(name: str) -> None:
    """Let every log handler of this process use a format of FORMATS."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(
            JsonFormatter() if name == "json" else PrintableFormatter(FORMAT, TIME_FORMAT)
        )


def set_level(level: str, logger: str) -> None:
    """Set the level of a logger and its children. "" is the root logger. Raises ValueError."""
    if level.upper() not in LEVELS:
        raise ValueError(f"the level {level!r} is none of {', '.join(LEVELS)}")
    logging.getLogger(logger).setLevel(level.upper())

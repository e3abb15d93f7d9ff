"""Lines of node.log: one for each message, whatever a client has called its groups."""

import logging
from typing import Any

from ..wire.printable import printable

INDENT = "  "  # what follows a message begins as no message does


class PrintableFormatter(logging.Formatter):
    """Escapes control characters and line ends of messages; indents tracebacks below them."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(INDENT + printable(line, keep="\t") for line in text.split("\n"))

"""Reduces an error from Spark, with stack traces of Python and Java in its text, to one sentence.

py4j and Spark include the text of `traceback.format_exc()` in their own messages, so the first line
says only that there was an error. The last Python error in the text is the most useful one, since a
cause is followed by its effects. A SinkStopped is preferred to any other error.
"""

import re
from collections.abc import Sequence

LENGTH_MAX = 500
TRACE = "Traceback (most recent call last):"
STOPPED = "SinkStopped: "
# Spark 4.x raises it while it handles the error of a source that could not be created.
NO_READER = "UnboundLocalError: cannot access local variable 'reader'"
_MODULE = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_]\w*(?::|$))")


def sentence_of(problem: BaseException) -> str:
    """Describe a failure in one line of at most LENGTH_MAX characters."""
    lines = str(problem).splitlines()
    raised = _raised(lines)
    stopped = [line for line in raised if STOPPED in line]
    shown = [line for line in lines if line.strip()]
    chosen = [*shown[:1], *raised[-1:], *stopped[-1:]] or [type(problem).__name__]
    return _MODULE.sub("", chosen[-1].strip())[:LENGTH_MAX]


def _raised(lines: Sequence[str]) -> list[str]:
    """Return the line with type and text of each Python error, which follows its stack trace."""
    found: list[str] = []
    is_within = False
    for line in lines:
        if TRACE in line:
            is_within = True
        elif is_within and line.strip() and not line[0].isspace():
            if not line.startswith(NO_READER):
                found.append(line)
            is_within = False
    return found

"""Event loops of tests, which close transports that a test has left open, and then warn.

A transport that outlives its loop would fail a later test, in which the garbage collector finds the
transport. If warnings are errors, `close` of a plain uvloop leaves such a transport open, and waits
until its peer closes the connection.
"""

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Coroutine
from typing import Any

import uvloop

_closing = threading.RLock()  # catch_warnings is for one thread at a time


class UvLoop(uvloop.Loop):
    def close(self) -> None:
        """Close the loop and all handles, with a warning for each open handle."""
        with _closing, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            super().close()
        for each in caught:
            warnings.warn(each.message, stacklevel=2)


class SelectorLoop(asyncio.SelectorEventLoop):
    def close(self) -> None:
        """Close the loop and all transports, with a warning for each open transport."""
        left: list[asyncio.Transport] = []
        if not self.is_closed():
            transports: Any = self._transports  # type: ignore[attr-defined]
            left = [each for each in transports.values() if not each.is_closing()]
            for each in left:
                each.abort()
            if transports:
                self.run_until_complete(asyncio.sleep(0))  # those that are closing are closed now
        super().close()
        for each in left:
            warnings.warn(f"unclosed resource {each!r}", ResourceWarning, stacklevel=2)


def run_in_new_loop(work: Coroutine[Any, Any, None], *, is_uvloop: bool) -> None:
    """Run a coroutine in a new loop. After a success, warn of transports that are still open."""
    runner = asyncio.Runner(loop_factory=UvLoop if is_uvloop else SelectorLoop)
    try:
        runner.run(work)
    except BaseException:
        with contextlib.suppress(ResourceWarning):  # the first error counts
            runner.close()
        raise
    runner.close()

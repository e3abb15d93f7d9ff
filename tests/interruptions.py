"""Interrupt a call at each point at which a signal handler may raise, without a signal."""

import dis
import sys
from collections.abc import Callable, Collection
from types import CodeType, FrameType

# the instructions after which Python handles signals
HANDLING = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME"}


def handler(code: CodeType, offset: int) -> int | None:
    """Return the offset of the code that handles an exception of the instruction at `offset`."""
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return next((each.target for each in entries if each.start <= offset < each.end), None)


class Interruption:
    """A tracer that raises KeyboardInterrupt at one of the points at which Python handles signals.

    It raises before the next instruction, so it passes over a point if another handler is
    responsible there. `points` is the number of points in these files that it has passed.
    """

    def __init__(
        self, number: int, files: Collection[str], act: Callable[[], object] | None = None
    ) -> None:
        """Create a tracer. It calls `act` instead of raising, if that is given."""
        self.points, self._number, self._files, self._act = 0, number, files, act
        self._before: dict[int, int] = {}  # the offset of the last instruction of each frame

    def __call__(self, frame: FrameType, event: str, _: object) -> "Interruption | None":
        code, here = frame.f_code, frame.f_lasti
        if code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before, self._before[id(frame)] = self._before.get(id(frame), -1), here
            if (
                before >= 0
                and dis.opname[code.co_code[before]] in HANDLING
                and handler(code, before) == handler(code, here)
            ):
                self.points += 1
                if self.points == self._number:
                    sys.settrace(None)
                    if self._act is None:
                        raise KeyboardInterrupt
                    self._act()
        elif event == "return":
            self._before.pop(id(frame), None)
        return self


def interrupted(
    call: Callable[[], object],
    number: int,
    files: Collection[str],
    act: Callable[[], object] | None = None,
) -> bool:
    """Call, interrupt the call at this point, and return False if it has fewer points.

    act: a signal handler that is called there, instead of one that raises KeyboardInterrupt.
    """
    before = sys.gettrace()
    tracer = Interruption(number, files, act)
    sys.settrace(tracer)
    try:
        call()
    except (KeyboardInterrupt, RuntimeError):  # threading: a lock that was released already
        pass
    finally:
        sys.settrace(before)
    return tracer.points >= number

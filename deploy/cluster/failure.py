"""The exception with a text for users, and the conversion of system errors into it."""

import errno
import os

_NOT_ALLOWED = "Run this as its owner, or choose another place."
_ADVICE = {
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: "Choose a writable place.",
    errno.ENOSPC: "Make room, or choose another disk.",
    errno.EDQUOT: "Make room, or choose another disk.",
    errno.EIO: "The disk fails. See the messages of the kernel (dmesg).",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path.",
    errno.EISDIR: "Give a file.",
    errno.ENAMETOOLONG: "Give a shorter path.",
    errno.ELOOP: "Give a path without links.",
    errno.EMFILE: "Allow more open files: ulimit -n 65536.",
}
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)  # need no file name


class Failure(Exception):
    """A problem for the user, in one or two sentences (cause, reason, remedy).

    The command line prints the sentences without a traceback and exits with `exit_code`.
    """

    def __init__(self, sentence: str, *, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def told_by_system(problem: OSError) -> str | None:
    """Return advice about a system error as a sentence, or None if the error is a bug."""
    number = problem.errno or 0
    if number not in _ADVICE or (problem.filename is None and number not in _OF_THE_DISK):
        return None
    where = "" if problem.filename is None else f"{os.fsdecode(problem.filename)}: "
    return f"{where}{os.strerror(number)}. {_ADVICE[number]}"

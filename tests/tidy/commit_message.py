"""Check the message of a commit, as a git hook that `make dev` installs.

The command is python -m tests.tidy.commit_message FILE.
"""

import re
import subprocess
import sys
from pathlib import Path

SUBJECT_MAX, LINES_MAX = 72, 20
SUBJECT = re.compile(r"[a-z][\w/., -]*: \S.*[^.]")


def problems(message: str, changed_lines: int) -> list[str]:
    """Return sentences about what is wrong in a commit message.

    `changed_lines` counts the commit's added and removed lines.
    """
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject, body = (lines[0] if lines else ""), [line for line in lines[1:] if line.strip()]
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return []
    found: list[str] = []
    if len(subject) > SUBJECT_MAX:
        found.append(f"the subject has {len(subject)} characters, at most {SUBJECT_MAX} fit")
    if not SUBJECT.fullmatch(subject):
        found.append("the subject has to be `area: what changes`, without a full stop")
    if len(lines) > 1 and lines[1].strip():
        found.append("the second line has to be empty")
    if changed_lines > LINES_MAX and not body:
        found.append(f"{changed_lines} lines change: the body has to say why")
    return found


def changed_lines() -> int:
    """Return the number of added and removed lines in the index."""
    command = ("git", "diff", "--cached", "--numstat")
    rows = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    counts = [count for row in rows for count in row.split("\t")[:2]]
    return sum(int(count) for count in counts if count.isdecimal())  # a binary file has `-`


def main() -> int:
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8"), changed_lines())
    for problem in found:
        print(f"commit message: {problem}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

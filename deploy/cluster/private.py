"""Directories and files for their owner alone: a cluster's hold every record and, soon, passwords.

Other users of the machine cannot enter a directory of mode 0700, so what lies in one is safe
whatever its own mode. A directory of another user is refused, by root, too: its owner could put a
link where a file of ours is to be. Root's own is taken: root may do anything anyway, and a volume
of a container is root's.
"""

import os
from pathlib import Path

from ...storage.directory.lock import close_to_others, other_owner
from .failure import Failure


def make_private_directory(path: Path) -> None:
    """Make a directory of mode 0700, or take one of ours and make it so."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_ours(path)
    close_to_others(path)


def require_ours(path: Path) -> None:
    """Raise Failure when a directory or file belongs to another user but root."""
    if (owner := other_owner(path)) is not None:
        raise Failure(
            f"{path} belongs to user {owner}, and this is user {os.geteuid()}: its owner could "
            "have it hold anything. Run this as that user, or choose another directory."
        )


def opener(path: str, flags: int) -> int:
    """Open a file as `open` wants it: of mode 0600 when it is new, and never through a link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a whole file that only its owner may read."""
    with open(path, "w", encoding="utf-8", opener=opener) as file:
        file.write(text)

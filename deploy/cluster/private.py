"""Directories and files for their owner only, since a cluster's files have records and passwords.

Other users of the machine cannot enter a directory of mode 0700, so files in it are safe whatever
their own mode is. A directory of another user is refused, even for root, because its owner could
put a link in the place of a file of ours. A directory of root is accepted, because root may do
anything in any case, and volumes of containers belong to root.
"""

import os
from pathlib import Path

from ...storage.directory.lock import close_to_others, other_owner
from .failure import Failure


def make_private_directory(path: Path) -> None:
    """Create a directory of mode 0700, or set the mode of an existing directory of ours."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_ours(path)
    close_to_others(path)


def require_ours(path: Path) -> None:
    """Raise Failure unless a directory or file belongs to this user or to root."""
    if (owner := other_owner(path)) is not None:
        raise Failure(
            f"{path} belongs to user {owner}, and this is user {os.geteuid()}: its owner could "
            "put anything into it. Run this as that user, or choose another directory."
        )


def opener(path: str, flags: int) -> int:
    """Open a file as an opener of `open`, with mode 0600 if it is new, never through a link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a whole file that only its owner may read."""
    with open(path, "w", encoding="utf-8", opener=opener) as file:
        file.write(text)

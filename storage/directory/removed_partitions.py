"""The directories of removed partitions, from their renaming to their removal.

  <topic>-<partition>.<hex>-delete    waits for `purge`
  <topic>-<partition>.<hex>-stray     is kept for the operator, neither served nor deleted
  <topic>-<partition>.<hex>-damaged   is kept until its new copy is in sync

Each step may be retried, so that a full or slow disk only delays the deletion of a topic.

A long topic name is cut, and then may be the name of another topic. So after a restart a damaged
directory with a cut name is kept until an operator deletes it.
"""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from ...runtime.fault_point import FaultPoint

FILE_NAME_BYTES_MAX = 255
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
_DAMAGED_DIRECTORY = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-damaged")


class RemovedPartitions:
    """The partitions that are being removed from the data directory `path`. Raises OSError."""

    __slots__ = ("_fault_point", "_path", "_renamed", "_strays", "damaged", "waiting")

    def __init__(self, path: Path, fault_point: FaultPoint) -> None:
        self._path = path
        self._fault_point = fault_point
        self._renamed: list[Path] = []
        self._strays: list[tuple[str, int, Path]] = []  # damaged directories, still to be renamed
        # Partitions that could not be renamed, so that their directories still have their names.
        self.waiting: set[tuple[str, int]] = set()
        self.damaged: dict[tuple[str, int], list[Path]] = {}  # renamed directories that are kept

    def found(self, path: Path) -> bool:
        """Record a directory that an earlier run has renamed for deletion, or as damaged.

        Return whether it is to be deleted.
        """
        is_deleted = _DELETED_DIRECTORY.fullmatch(path.name) is not None
        if is_deleted:
            self._renamed.append(path)
        elif len(path.name) < FILE_NAME_BYTES_MAX and (
            match := _DAMAGED_DIRECTORY.fullmatch(path.name)
        ):
            self.damaged.setdefault((match[1], int(match[2])), []).append(path)
        return is_deleted

    def delete(self, topic: str, partition: int) -> None:
        """Rename a partition's directory for removal.

        If that fails, `retry` renames the directory.
        """
        self.waiting.add((topic, partition))
        target = self.rename(topic, partition, "delete")
        self.waiting.discard((topic, partition))
        if target is not None:
            self._renamed.append(target)

    def set_aside(self, topic: str, partition: int) -> Path | None:
        """Rename a damaged directory, which is kept until `release`.

        Returns the new path, or None if there is no directory.
        """
        target = self.rename(topic, partition, "damaged")
        if target is not None:
            self.damaged.setdefault((topic, partition), []).append(target)
        return target

    def release(self, topic: str, partition: int) -> None:
        """Let the next `purge` remove the kept directories of a partition."""
        self._renamed += self.damaged.pop((topic, partition), ())

    def keep(self, topic: str, partition: int) -> None:
        """Keep the damaged directories of a partition until an operator deletes them.

        `rename_strays` or the next `purge` renames them.
        """
        damaged = self.damaged.pop((topic, partition), ())
        self._strays += ((topic, partition, path) for path in damaged)

    def rename_strays(self) -> None:
        """Rename the directories that `keep` was called for (blocks)."""
        for stray in list(self._strays):
            topic, partition, path = stray
            self.rename(topic, partition, "stray", path)
            with suppress(ValueError):  # another thread has done the same
                self._strays.remove(stray)

    def retry(self) -> None:
        """Retry all failed renames. If some fail again, raise the first error at the end."""
        problem = None
        for topic, partition in list(self.waiting):
            try:
                self.delete(topic, partition)
            except OSError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def rename(
        self, topic: str, partition: int, suffix: str, path: Path | None = None
    ) -> Path | None:
        """Rename a partition's directory, so that no new partition and no restart finds it.

        path: the directory, if it was renamed before. Returns None if there is no directory.
        """
        number = 0
        while True:
            ending = f"-{partition}.{number:032x}-{suffix}"
            target = self._path / (topic[: FILE_NAME_BYTES_MAX - len(ending)] + ending)
            if not target.exists():
                break
            number += 1
        self._fault_point("directory.before-rename")
        try:
            os.rename(path or self._path / f"{topic}-{partition}", target)
        except FileNotFoundError:
            return None
        self._fault_point("directory.after-rename")
        return target

    def purge(self) -> int:
        """Remove the directories renamed for deletion (blocks).

        Return how many. The strays are renamed first. The method may run in an executor. A
        directory that cannot be removed is retried by the next call, and the first error is raised
        at the end.
        """
        count, problem = 0, None
        try:
            self.rename_strays()
        except OSError as error:
            problem = error
        for path in list(self._renamed):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                pass  # already removed by other means
            except OSError as error:
                problem = problem or error
                continue
            self._renamed.remove(path)
            count += 1
        if problem is not None:
            raise problem
        return count

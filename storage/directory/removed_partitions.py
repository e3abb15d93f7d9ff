"""The directories of partitions that are served no longer, from their renaming to their removal.

    <topic>-<partition>.<hex>-delete    waits for `purge`
    <topic>-<partition>.<hex>-stray     is set aside: nobody serves it, nobody deletes it
    <topic>-<partition>.<hex>-damaged   is set aside until its replica, copied anew, is in sync

Each step is one that may be tried again: a disk that is full or slow to answer now must not keep
a deleted topic from being deleted later.
"""

import os
import re
import shutil
from pathlib import Path

from ...runtime.fault_point import FaultPoint

FILE_NAME_BYTES_MAX = 255
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
_DAMAGED_DIRECTORY = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-damaged")


class RemovedPartitions:
    """What has left the data directory `path`, or is about to. Methods raise OSError."""

    __slots__ = ("_fault_point", "_path", "_renamed", "damaged", "waiting")

    def __init__(self, path: Path, fault_point: FaultPoint) -> None:
        self._path = path
        self._fault_point = fault_point
        self._renamed: list[Path] = []
        # Those that could not be renamed yet: they still bear their partition's name.
        self.waiting: set[tuple[str, int]] = set()
        self.damaged: dict[tuple[str, int], list[Path]] = {}  # set aside

    def found(self, path: Path) -> bool:
        """Whether a directory that lay here at the start is one that an earlier run deleted."""
        is_deleted = _DELETED_DIRECTORY.fullmatch(path.name) is not None
        if is_deleted:
            self._renamed.append(path)
        elif match := _DAMAGED_DIRECTORY.fullmatch(path.name):
            self.damaged.setdefault((match[1], int(match[2])), []).append(path)
        return is_deleted

    def delete(self, topic: str, partition: int) -> None:
        """Rename a partition's directory for its removal; it waits until that has succeeded."""
        self.waiting.add((topic, partition))
        target = self.rename(topic, partition, "delete")
        self.waiting.discard((topic, partition))
        if target is not None:
            self._renamed.append(target)

    def set_aside(self, topic: str, partition: int) -> Path | None:
        """Keep a damaged directory under another name, until `release`."""
        target = self.rename(topic, partition, "damaged")
        if target is not None:
            self.damaged.setdefault((topic, partition), []).append(target)
        return target

    def release(self, topic: str, partition: int) -> None:
        """What was set aside of a partition is removed by the next `purge`."""
        self._renamed += self.damaged.pop((topic, partition), ())

    def retry(self) -> None:
        """Try the renames again that have failed; the first error is raised behind the last one."""
        problem = None
        for topic, partition in list(self.waiting):
            try:
                self.delete(topic, partition)
            except OSError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def rename(self, topic: str, partition: int, suffix: str) -> Path | None:
        """Give a partition's directory a name that is none of a partition; None if there is none.

        Under the new name it belongs to nobody: neither a new partition nor a restart finds it.
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
            os.rename(self._path / f"{topic}-{partition}", target)
        except FileNotFoundError:
            return None
        self._fault_point("directory.after-rename")
        return target

    def purge(self) -> int:
        """Remove what was renamed (blocks); how many partitions. May run in an executor.

        What cannot be removed is tried again by the next call; the first error is raised behind
        the last one.
        """
        count, problem = 0, None
        for path in list(self._renamed):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                pass  # somebody else has removed it
            except OSError as error:
                problem = problem or error
                continue
            self._renamed.remove(path)
            count += 1
        if problem is not None:
            raise problem
        return count

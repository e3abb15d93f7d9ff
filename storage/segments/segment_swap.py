"""The replacement of segments by a compacted segment, which a crash leaves undone or complete.

    <base>.log.cleaned ...   the replacement is being written: a restart deletes it
    <base>.log.swap ...      the replacement is complete and on disk: a restart finishes the rest
    <old>.log.deleted ...    the old segments are renamed
    <base>.log ...           the replacement has its final name

The change from .cleaned to .swap is one rename for each file. As long as a .cleaned file is left
the replacement counts as incomplete, and its .swap files are also deleted. The suffixes and the
rule are Kafka's.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ...runtime.fault_point import FaultPoint
from ..disk_guard import OUT_OF_RESOURCES
from ..log_config import LogConfig
from .contiguous_mark import MARK
from .log_file import LogFile, scan_headers
from .retention import DELETED_SUFFIX, DeletedFiles
from .segment import SUFFIXES, Segment, segment_path
from .segment_list import SegmentList

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def swap_in(
    segments: SegmentList,
    base_offset: int,
    replaced: Sequence[Segment],
    config: LogConfig,
    deleted: DeletedFiles,
    *,
    now_ms: int,
    retriable: AbstractContextManager[None],
    fault_point: FaultPoint,
) -> Segment:
    """Replace `replaced` by the segment in the .cleaned files.

    The .cleaned files must be complete and on disk. `replaced` are inactive, adjacent segments, the
    first of which begins at `base_offset`. Raises OSError. A lack of space or of file descriptors
    is raised under `retriable`, where nothing has changed.
    """
    directory = replaced[0].directory
    with retriable:
        cleaned = Segment(directory, base_offset, config, now_ms, suffix=CLEANED_SUFFIX)
        _make_swaps(directory, base_offset, fault_point)
    fault_point("log.swap.after-rename")
    for segment in replaced:
        segments.remove(segment)
        try:
            deleted.retire(segment, now_ms + config.file_delete_delay_ms)
        except OSError as problem:
            if problem.errno not in OUT_OF_RESOURCES:
                raise
            segment.delete()
        fault_point("log.swap.after-retire")
    for suffix in SUFFIXES:
        path = segment_path(directory, base_offset, suffix + SWAP_SUFFIX)
        if path.exists():
            path.rename(segment_path(directory, base_offset, suffix))
            fault_point("log.swap.after-final-rename")
    cleaned.take_final_names()
    segments.add(cleaned)
    return cleaned


def _make_swaps(directory: Path, base_offset: int, fault_point: FaultPoint) -> None:
    """Rename the complete .cleaned files to .swap. If a rename fails, no .swap file is left."""
    swaps: list[Path] = []
    try:
        for suffix in SUFFIXES:
            path = segment_path(directory, base_offset, suffix + CLEANED_SUFFIX)
            if path.exists():
                fault_point("log.swap.before-rename")
                swaps.append(segment_path(directory, base_offset, suffix + SWAP_SUFFIX))
                path.rename(swaps[-1])
    except OSError:
        for path in swaps:
            path.unlink(missing_ok=True)
        raise


def finish_swaps(directory: Path) -> None:
    """Finish or undo a replacement that a crash interrupted, so that only final names are left."""
    left: dict[str, list[Path]] = {DELETED_SUFFIX: [], CLEANED_SUFFIX: [], SWAP_SUFFIX: []}
    for name in os.listdir(directory):
        suffix = os.path.splitext(name)[1]
        if suffix in left and name != MARK:
            left[suffix].append(directory / name)
    for path in left[DELETED_SUFFIX]:
        path.unlink()
    cleaned, swaps = left[CLEANED_SUFFIX], left[SWAP_SUFFIX]
    if cleaned:
        incomplete_from = min(_base_offset(path) for path in cleaned)
        for path in [*swaps, *cleaned]:
            if path in cleaned or _base_offset(path) >= incomplete_from:
                path.unlink()
        swaps = [path for path in swaps if _base_offset(path) < incomplete_from]
    for path in swaps:
        if path.name.endswith(f".log{SWAP_SUFFIX}"):
            _remove_replaced(directory, path)
    for path in swaps:
        path.rename(path.with_name(path.name.removesuffix(SWAP_SUFFIX)))


def _remove_replaced(directory: Path, swap: Path) -> None:
    """Delete the old segments that a complete .swap segment replaces."""
    first_offset = next_offset = _base_offset(swap)
    file = LogFile(swap)
    for _, header in scan_headers(file, 0, file.size_on_disk()):
        next_offset = header.last_offset + 1
    for suffix in SUFFIXES:
        for path in directory.glob(f"*{suffix}"):
            if first_offset <= _base_offset(path) < max(next_offset, first_offset + 1):
                path.unlink()


def _base_offset(path: Path) -> int:
    return int(path.name.split(".", 1)[0])

"""The formats of recordings that this version can read."""

import json
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .schema import FOLDER, FORMAT_VERSION

Array = npt.NDArray[Any]


class HistoryFormat(Exception):
    """The recording has a format that this version cannot read."""


def recordings(run: Path) -> list[Path]:
    """Return the folders of a run's recorders, or raise HistoryFormat for an unknown format."""
    folders = sorted(folder for folder in (run / FOLDER).iterdir() if folder.is_dir())
    for folder in folders:
        _check_format(folder)
    return folders


def _check_format(folder: Path) -> None:
    try:
        about = json.loads((folder / "recorder.json").read_text(encoding="utf-8"))
        version = int(about["format"])
    except (OSError, ValueError, KeyError, TypeError):
        raise HistoryFormat(f"{folder} is not a recording") from None
    if version != FORMAT_VERSION:
        raise HistoryFormat(
            f"{folder} has format {version}; this version reads format {FORMAT_VERSION}"
        )

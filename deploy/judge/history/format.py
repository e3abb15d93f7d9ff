"""Which recordings this version can read."""

import json
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .schema import FORMAT_VERSION

Array = npt.NDArray[Any]


class HistoryFormat(Exception):
    """A recording that this version cannot read."""


def check_format(folder: Path) -> None:
    """Raise HistoryFormat unless a recorder's folder is of a format that is known."""
    try:
        about = json.loads((folder / "recorder.json").read_text(encoding="utf-8"))
        version = int(about["format"])
    except (OSError, ValueError, KeyError, TypeError):
        raise HistoryFormat(f"{folder} is not a recording") from None
    if version != FORMAT_VERSION:
        raise HistoryFormat(
            f"{folder} has format {version}; this version reads format {FORMAT_VERSION}"
        )

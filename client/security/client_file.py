"""Reads the settings of connections from a `client.properties`, for `--command-config`.

No other module reads such a file. The settings have secrets as `Secret`, so they may be kept,
pickled and shown.
"""

from pathlib import Path
from typing import Any

from ..settings import ADMIN_NAMES, hidden_secrets
from .properties_file import known_settings, parse_properties


def read_client_file(file: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings of connections, by dotted names, and the names of unused settings.

    Raises ValueError with a message that names the file and contains none of its values.
    """
    try:
        found, unused = known_settings(
            parse_properties(file.read_text(encoding="utf-8")), ADMIN_NAMES
        )
    except OSError as problem:
        raise ValueError(f"{file} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not text in UTF-8") from None
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}") from None
    return hidden_secrets(found), unused

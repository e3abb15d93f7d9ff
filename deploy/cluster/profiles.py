"""Profiles, which are clusters by name, in a file of the user.

Commands that find no local cluster use the profiles. The file is JSON, readable by its owner only,
`{"current": NAME, "profiles": {NAME: {"bootstrap": ..., "command_config": ..., "registry": ...}}}`.
ONCELOG_PROFILES names another file.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .failure import Failure
from .private import write_private


@dataclass(frozen=True, slots=True)
class Profile:
    """The connection to a cluster. `command_config` is a client.properties."""

    bootstrap: str | None = None
    command_config: str | None = None
    registry: str | None = None


@dataclass(slots=True)
class Profiles:
    """The profiles in the user's file. `current` is the name of the profile in use, or None."""

    current: str | None = None
    profiles: dict[str, Profile] = field(default_factory=dict[str, Profile])

    def named(self, name: str) -> Profile:
        """Return a profile, or raise Failure if the name is unknown."""
        found = self.profiles.get(name)
        if found is None:
            there_are = ", ".join(sorted(self.profiles)) or "none"
            raise Failure(f"There is no profile {name}; there are: {there_are}.", exit_code=2)
        return found


def file_of_profiles() -> Path:
    """Return the path of the user's file of profiles."""
    if named := os.environ.get("ONCELOG_PROFILES"):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(folder) / "oncelog" / "profiles.json"


def read_profiles() -> Profiles:
    """Return the file's contents, empty without a file, or raise Failure when it cannot be read."""
    file = file_of_profiles()
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        known = {name: Profile(**each) for name, each in values["profiles"].items()}
        found = Profiles(values.get("current"), known)
        _require_texts(found)
        return found
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as problem:
        raise Failure(f"{file} cannot be read: {problem.strerror}.", exit_code=2) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Failure(
            f"{file} has no profiles of oncelog. Correct it or remove it.", exit_code=2
        ) from None


def _require_texts(profiles: Profiles) -> None:
    """Raise TypeError if a value in a profile is not a string, as after a manual edit."""
    texts = [text for each in profiles.profiles.values() for text in asdict(each).values()]
    if not all(text is None or isinstance(text, str) for text in [profiles.current, *texts]):
        raise TypeError


def write_profiles(profiles: Profiles) -> None:
    """Replace the file in one step, or raise Failure when it cannot be written."""
    file = file_of_profiles()
    text = json.dumps(asdict(profiles), indent=1) + "\n"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        write_private(part, text)
        part.replace(file)
    except OSError as problem:
        raise Failure(f"{file} cannot be written: {problem.strerror}.") from None

"""The digest of a recipe's files. A verdict is valid only for files with its digest."""

import hashlib
from pathlib import Path

from ...deploy.cluster.failure import Failure
from ...storage.checkpoint import TEMPORARY_SUFFIX

FILE_BYTES_MAX, FILES_MAX = 1_000_000, 50
COMPILED = "__pycache__"
VERDICT, JUNIT, SARIF, REPORT = "verdict.json", "verdict.xml", "verdict.sarif", "report.md"
BADGE = "badge.json"
LOCK = "certify.lock"  # of the run that writes to a folder
EXPECTED = "expected.toml"
WRITTEN = (VERDICT, JUNIT, SARIF, REPORT, BADGE)
NOT_HASHED = {EXPECTED, LOCK, *WRITTEN, *(name + TEMPORARY_SUFFIX for name in WRITTEN)}


def program_files(folder: Path) -> list[Path]:
    """Return the files of a recipe, sorted by path, without expected.toml and the results.

    Raises Failure for a folder that is too large for a digest.
    """
    found: list[Path] = []
    for file in folder.rglob("*"):
        name = file.relative_to(folder)
        if COMPILED in name.parts or str(name) in NOT_HASHED:
            continue
        if file.is_symlink():
            raise Failure(f"{file} is a link. A recipe holds the files themselves.", exit_code=2)
        if not file.is_file():
            continue
        if file.stat().st_size > FILE_BYTES_MAX:
            raise Failure(f"{file} has more than {FILE_BYTES_MAX} bytes.", exit_code=2)
        found.append(file)
        if len(found) > FILES_MAX:
            raise Failure(f"{folder}: a recipe has at most {FILES_MAX} files.", exit_code=2)
    return sorted(found)


def digest_of(folder: Path) -> str:
    """Return the digest of a recipe's files, by their names and contents."""
    hashed = hashlib.sha256()
    for file in program_files(folder):
        name, content = str(file.relative_to(folder)).encode(), file.read_bytes()
        hashed.update(b"%d %d\n" % (len(name), len(content)) + name + content)
    return hashed.hexdigest()[:16]

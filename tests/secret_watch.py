"""Search for leaked secrets of secured clusters while tests run.

The search covers the command lines and environments of all processes, and all files below some
folders, such as logs, reports, histories and data of nodes. It looks for the passwords and private
keys of all clusters there. Only the folders `tls/` and `client/`, the nodes' server.properties and
client files may have secrets. Only the owner of a cluster's directory may read its files.
"""

import contextlib
import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

OWN_FOLDERS, OWN_FILES = ("tls", "client"), ("server.properties",)
CLIENT_FILES = (".librdkafka.properties", ".java.properties")
PASSWORD = b"sasl.password="
EVERY_S, FILES_EVERY_S = 0.3, 2.0
KEY = b"PRIVATE KEY"


class SecretWatch(threading.Thread):
    """A thread that searches for secrets while its context is open.

    The end of the context raises AssertionError if a secret was found in a wrong place, or if no
    secured cluster was running.
    """

    def __init__(self, *folders: Path) -> None:
        super().__init__(daemon=True)
        self._folders = folders
        self._over = threading.Event()
        self._secrets: set[bytes] = set()
        self._seen: set[str] = set()  # processes that were started with the path of a folder
        self.found: set[str] = set()

    def __enter__(self) -> "SecretWatch":
        self.start()
        return self

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        self._over.set()
        self.join()
        self._look_at_files()
        if problem is None:
            assert self._secrets, "no secured cluster was seen"
            assert self._seen, "no process of it was seen"
            assert not self.found, self.found

    def run(self) -> None:
        due_s = 0.0
        while not self._over.wait(EVERY_S):
            self._learn()
            self._look_at_processes()
            if time.monotonic() > due_s:
                self._look_at_files()
                due_s = time.monotonic() + FILES_EVERY_S

    def _learn(self) -> None:
        for path in self._paths():
            with contextlib.suppress(OSError, ValueError):
                if path.name == "passwords.json":
                    passwords = json.loads(path.read_text()).values()
                    self._secrets.update(each.encode() for each in passwords)
                elif path.name.endswith(CLIENT_FILES[0]):
                    lines = path.read_bytes().splitlines()
                    starts = [line for line in lines if line.startswith(PASSWORD)]
                    self._secrets.update(line.removeprefix(PASSWORD) for line in starts)
                elif path.name == "node.pem":
                    self._secrets.add(path.read_bytes().splitlines()[1])  # of the key itself

    def _look_at_processes(self) -> None:
        folders = [str(folder).encode() for folder in self._folders]
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal():
                continue
            for place in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    said = (process / place).read_bytes()
                    self._look(said, f"{place} of {process.name}: {said[:200]!r}")
                    if any(folder in said for folder in folders):
                        self._seen.add(process.name)

    def _look_at_files(self) -> None:
        clusters: list[Path] = []
        for path in self._paths():
            with contextlib.suppress(OSError):
                mode = path.lstat().st_mode
                if (path / "tls").is_dir():
                    clusters.append(path)
                is_open = stat.S_IMODE(mode) & 0o077 and not stat.S_ISLNK(mode)
                if is_open and any(path.is_relative_to(cluster) for cluster in clusters):
                    self.found.add(f"{path} is open to others")
                if stat.S_ISREG(mode) and not self._may_hold(path):
                    content = path.read_bytes()
                    self._look(content, str(path))
                    if KEY in content:
                        self.found.add(f"{path} holds a private key")

    def _look(self, content: bytes, where: str) -> None:
        if any(secret in content for secret in self._secrets):
            self.found.add(where)

    def _may_hold(self, path: Path) -> bool:
        if path.name.endswith(CLIENT_FILES):
            return not path.stat().st_mode & 0o077
        return path.parent.name in OWN_FOLDERS or path.name in OWN_FILES

    def _paths(self) -> Iterator[Path]:
        for folder in self._folders:
            for where, _, names in os.walk(folder):
                yield Path(where)
                yield from (Path(where) / name for name in names)

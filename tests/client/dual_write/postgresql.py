"""A PostgreSQL server of a test's own: Debian's package, on loopback, killed as the test likes."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...waiting import until

START_S = 60
SETTINGS = ("shared_buffers=16MB", "max_connections=20", "unix_socket_directories=")


def tool(name: str) -> str | None:
    """A program of the newest PostgreSQL that is installed."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name)


class PostgresServer:
    def __init__(self, folder: Path, user: str | None) -> None:
        self.folder, self._user, self._process = folder, user, None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        initdb = tool("initdb")
        assert initdb is not None
        command = [initdb, "-D", str(folder / "data"), "-U", "oncelog", "-A", "trust", "-N"]
        subprocess.run(
            [*command, "-E", "UTF8", "--no-locale"],
            check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder,
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://oncelog@127.0.0.1:{self.port}/postgres"

    def connect(self, **keywords: Any) -> Any:
        import psycopg

        return psycopg.connect(self.url, connect_timeout=5, **keywords)

    def start(self) -> None:
        postgres = tool("postgres")
        assert postgres is not None and self._process is None
        settings = [part for each in SETTINGS for part in ("-c", each)]
        where = ["-D", str(self.folder / "data"), "-p", str(self.port), "-h", "127.0.0.1"]
        deadline = time.monotonic() + START_S
        while True:  # the children of a server that was killed hold its memory for a moment
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [postgres, *where, *settings],
                    stdout=log, stderr=log, user=self._user, cwd=self.folder,
                )  # fmt: skip
            if self._is_ready(deadline):
                return
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)

    def _is_ready(self, deadline: float) -> bool:
        import psycopg

        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                self.connect().close()
                return True
            time.sleep(0.02)
        return False

    def kill(self) -> None:
        """As `kill -9` of the server and all of its children."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # fast
            process, self._process = self._process, None
            until(lambda: process.poll() is not None)


@contextlib.contextmanager
def postgresql() -> Iterator[PostgresServer]:
    """A running server. Skips with a word where there is none, or it may not be started."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra: database)")
    if tool("initdb") is None or tool("postgres") is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    user = None
    folder = Path(tempfile.mkdtemp(prefix="oncelog-postgresql-"))
    try:
        if os.geteuid() == 0:  # as whom a server refuses to run
            try:
                shutil.chown(folder, "postgres")
            except LookupError:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
            user = "postgres"
        server = PostgresServer(folder, user)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""A PostgreSQL server that tests may kill, from Debian's package, on loopback."""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from ..cluster.ends.guardian import environment_of, guardian, new_run
from ..cluster.failure import Failure

START_S = 60
STOP_S = 30
SETTINGS = ("shared_buffers=16MB", "max_connections=20", "unix_socket_directories=")


def tool(name: str) -> str | None:
    """Return the path of a program of the newest PostgreSQL, or None if it is not installed."""
    places = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = max(places, key=lambda place: _version(place.parts[-3]), default=None)
    return str(newest) if newest is not None else shutil.which(name)


def _version(text: str) -> list[int]:
    return [int(part) for part in text.split(".") if part.isdigit()]


def _serves(process: psutil.Process) -> bool:
    """Return whether a process of the server runs.

    A zombie does not run, and some parents do not reap their children.
    """
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class PostgresServer:
    """A PostgreSQL server process with an empty database in `folder`, on a free port.

    user: the system account that runs the server, None for the account of this process. run: the
    server's name for the guardian.
    """

    def __init__(self, folder: Path, user: str | None, run: str) -> None:
        self.folder, self._user, self._environment = folder, user, environment_of(run)
        # Drop root's permissions, including its groups.
        self._group = None if user is None else pwd.getpwnam(user).pw_gid
        self._groups: tuple[int, ...] | None = None if user is None else ()
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        initdb = tool("initdb")
        assert initdb is not None
        command = [initdb, "-D", str(folder / "data"), "-U", "oncelog", "-A", "trust", "-N"]
        made = subprocess.run(
            [*command, "-E", "UTF8", "--no-locale"],
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
            cwd=folder,
            user=user,
            group=self._group,
            extra_groups=self._groups,
            env=self._environment,
        )
        if made.returncode:
            raise Failure(f"initdb makes no database: {made.stderr.strip()[-500:]}")

    @property
    def url(self) -> str:
        return f"postgresql://oncelog@127.0.0.1:{self.port}/postgres"

    @property
    def is_started(self) -> bool:
        """Return whether the server was started, and neither stopped nor killed."""
        return self._process is not None

    def connect(self, **keywords: Any) -> Any:
        import psycopg

        return psycopg.connect(self.url, connect_timeout=5, **keywords)

    def start(self) -> None:
        """Start the server, and return when it answers."""
        postgres = tool("postgres")
        assert postgres is not None and self._process is None
        settings = [part for each in SETTINGS for part in ("-c", each)]
        where = ["-D", str(self.folder / "data"), "-p", str(self.port), "-h", "127.0.0.1"]
        deadline = time.monotonic() + START_S
        while True:  # the children of a server that was killed hold its memory for a moment
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [postgres, *where, *settings],
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    start_new_session=True,
                    user=self._user,
                    group=self._group,
                    extra_groups=self._groups,
                    env=self._environment,
                )
            if self._is_ready(deadline):
                return
            if time.monotonic() > deadline:
                last_words = (self.folder / "log").read_text(errors="replace")[-2000:]
                raise Failure(f"PostgreSQL does not start: {last_words}")
            time.sleep(0.1)

    def _is_ready(self, deadline: float) -> bool:
        import psycopg

        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                with contextlib.closing(self.connect()) as connection:
                    answer = connection.execute("SHOW data_directory").fetchone()
                if answer == (str(self.folder / "data"),):  # and not another's at this port
                    return True
            time.sleep(0.02)
        return False

    def kill(self) -> None:
        """Send SIGKILL to the server. Return when its children have ended.

        The children serve their clients until they notice the death of the server.
        """
        assert self._process is not None
        children = list[psutil.Process]()
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        deadline = time.monotonic() + STOP_S
        while any(_serves(child) for child in children):
            if time.monotonic() > deadline:
                raise Failure(f"Backends of a killed PostgreSQL serve on after {STOP_S} s.")
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # fast
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_S)
            finally:  # also at a second Ctrl-C, because its data is removed next
                self._process.kill()
                self._process.wait()
                self._process = None


def why_there_is_none() -> str:
    """Return a sentence about a missing requirement for a server, or an empty text."""
    if tool("initdb") is None or tool("postgres") is None:
        return "PostgreSQL is not installed (Debian: apt install postgresql)"
    if find_spec("psycopg") is None:
        return "psycopg is not installed; in a checkout of oncelog: pip install '.[database]'"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


def _user() -> str | None:
    """Return the account postgres, which runs the server if this process is root, or None."""
    return next((each.pw_name for each in pwd.getpwall() if each.pw_name == "postgres"), None)


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server, and remove its data at the end, or raise Failure if none is installed."""
    if why := why_there_is_none():
        raise Failure(why)
    folder = Path(tempfile.gettempdir()).resolve() / f"oncelog-postgresql-{secrets.token_hex(4)}"
    run = new_run()
    with guardian.kept("directory", folder), guardian.kept("run", run):
        folder.mkdir(mode=0o700)
        try:
            user = None
            if os.geteuid() == 0:
                user = _user()
                assert user is not None
                shutil.chown(folder, user)
            server = PostgresServer(folder, user, run)
            try:
                server.start()
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

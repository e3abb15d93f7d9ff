"""The data directory of a cluster, with cluster.json, a folder for each node, and sockets.

A node is recorded in cluster.json before it is started, so `down` finds the node even if `up` was
killed. Only one `up`, `down` or `start` at a time works on a directory. A file lock ensures this,
and the kernel releases the lock when its holder ends. The peers' sockets need a short path (107
bytes), so they are outside, in a folder of mode 0700 that is named in cluster.json.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...storage.directory.lock import close_to_others
from .failure import Failure, told_by_system
from .private import opener, require_ours
from .secured.files import DIRECTORIES
from .terminal import say

FORMAT = 1
CLUSTER_FILE, PART_FILE, LOCK_FILE = "cluster.json", ".cluster.json.part", ".lock"
SOCKET_PATH_BYTES_MAX = 107  # sun_path of Linux without its final zero
LONGEST_SOCKET_NAME = "/control-99999"


class DirectoryBusy(Failure):
    """The error of a directory on which another command works."""


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node of the cluster, with its id and its listening address.

    metrics_port: 0 without metrics.
    """

    node_id: int
    host: str
    port: int
    metrics_port: int = 0

    @property
    def metrics_url(self) -> str | None:
        """Return the URL of the node's metrics, or None if it serves no metrics."""
        return f"http://{self.host}:{self.metrics_port}/metrics" if self.metrics_port else None


@dataclass(slots=True)
class ClusterFile:
    cluster_id: str
    peer_directory: str
    profile: str
    nodes: list[NodeEntry]
    settings: dict[str, str] = field(default_factory=dict[str, str])
    is_complete: bool = False  # False while `up` has not finished
    is_secured: bool = False  # TLS, logins, an authorizer
    owner: str = ""  # a token of the `up` that started it last
    format: int = FORMAT

    @property
    def node_ids(self) -> list[int]:
        return [node.node_id for node in self.nodes]

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap line for clients."""
        return ",".join(f"{node.host}:{node.port}" for node in self.nodes)

    def entry(self, node_id: int) -> NodeEntry:
        """Return the entry of one node, or raise Failure if it is missing."""
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        have = ", ".join(str(i) for i in self.node_ids)
        raise Failure(f"There is no node {node_id}; the cluster has nodes {have}.")


def node_directory(data: Path, node_id: int) -> Path:
    """Return the folder of a node."""
    return data / f"node-{node_id}"


def existing(data: Path, hint: str = "") -> ClusterFile:
    """Return cluster.json, or raise Failure with `hint` if it is missing."""
    file = read(data)
    if file is None:
        words = f"There is no cluster in {data}. Start one with: oncelog up"
        raise Failure(words + hint)
    return file


def read(data: Path) -> ClusterFile | None:
    """Return cluster.json, or None without one.

    Raises Failure when the file cannot be read or parsed, or belongs to another user than this one
    or root.
    """
    file = data / CLUSTER_FILE
    try:
        text = file.read_text()
        require_ours(file)  # it names processes to end and directories to remove
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise Failure(f"{file} cannot be read by this user. Run this as its owner.") from None
    try:
        values = json.loads(text)
        if values["format"] != FORMAT:
            raise Failure(
                f"{file} has format {values['format']}, this oncelog reads format {FORMAT}. "
                "Use the oncelog that made it, or another --data."
            )
        values["nodes"] = [NodeEntry(**node) for node in values["nodes"]]
        return ClusterFile(**values)
    except (ValueError, KeyError, TypeError) as problem:
        raise Failure(
            f"{file} is not a cluster file of oncelog ({problem}). Use another --data."
        ) from None


def write(data: Path, cluster: ClusterFile) -> None:
    """Replace cluster.json atomically, in a directory that only its owner may enter."""
    if close_to_others(data):
        say(f"Other users had access to {data}. Now only its owner has access.")
    part = data / PART_FILE
    try:
        with open(part, "w", encoding="utf-8", opener=opener) as file:
            json.dump(asdict(cluster), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(data / CLUSTER_FILE)
    except OSError as problem:
        part.unlink(missing_ok=True)
        problem.filename = problem.filename or str(data / CLUSTER_FILE)  # a full disk names none
        raise


def remove(data: Path, cluster: ClusterFile | None) -> None:
    """Remove the files of `up` from a directory, and the directory if nothing else is in it."""
    for node_id in cluster.node_ids if cluster is not None else ():
        shutil.rmtree(node_directory(data, node_id), ignore_errors=True)
    for name in DIRECTORIES if cluster is not None and cluster.is_secured else ():
        shutil.rmtree(data / name, ignore_errors=True)
    for name in (CLUSTER_FILE, PART_FILE, LOCK_FILE):
        (data / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        data.rmdir()  # stays when a person put something there


def require_usable(data: Path) -> None:
    """Raise Failure when the directory has files that do not come from `up`."""
    if foreign := [p.name for p in data.iterdir() if p.name not in (PART_FILE, LOCK_FILE)]:
        raise Failure(
            f"{data} is not empty ({', '.join(sorted(foreign)[:3])}) and has no oncelog "
            "cluster: it may belong to something else. Choose another --data."
        )


def require_same_cluster(data: Path, cluster: ClusterFile) -> None:
    """Raise Failure when a node's folder belongs to another cluster than cluster.json names."""
    for node_id in cluster.node_ids:
        file = node_directory(data, node_id) / "meta.properties"
        if not file.exists():
            continue
        lines = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
        theirs = lines.get("cluster.id", cluster.cluster_id)
        if theirs != cluster.cluster_id:
            raise Failure(
                f"{file.parent} belongs to cluster {theirs}, but {data / CLUSTER_FILE} names "
                f"cluster {cluster.cluster_id}. Put the right folder back, or use another --data."
            )


@contextlib.contextmanager
def locked(data: Path) -> Iterator[None]:
    """Hold the directory's lock, or raise DirectoryBusy when another command holds it.

    A missing directory is created for the lock, and removed afterwards if it has no cluster.
    """
    new = [path for path in (data, *data.parents) if not path.exists()]
    lock = _take_lock(data)
    try:
        yield
    finally:
        if not (data / CLUSTER_FILE).exists():
            (data / LOCK_FILE).unlink(missing_ok=True)
            for path in new:
                with contextlib.suppress(OSError):  # gone, or a person has put a file there
                    path.rmdir()
        os.close(lock)


def _take_lock(data: Path) -> int:
    while True:
        lock = _open_lock(data)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise DirectoryBusy(
                f"Another oncelog command is working on {data}. Wait for it, then try again."
            ) from None
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # its last holder has removed it


def _open_lock(data: Path) -> int:
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_ours(data)
        return opener(str(data / LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except (FileExistsError, NotADirectoryError):
        raise Failure(
            f"{data} is a file, or is inside of one. Give a directory with --data."
        ) from None
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise Failure(f"{data / LOCK_FILE} cannot be opened: it is a link.") from None
        raise Failure(told_by_system(problem) or str(problem)) from None


def peer_directory_for(cluster_id: str) -> Path:
    """Return a short path for the peers' sockets, one for each cluster."""
    digest = hashlib.sha256(cluster_id.encode()).hexdigest()[:12]
    name = f"oncelog-{os.getuid()}-{digest}"
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if base and Path(base).is_dir() and os.access(base, os.W_OK):
            path = Path(base) / name
            if len(os.fsencode(path)) + len(LONGEST_SOCKET_NAME) <= SOCKET_PATH_BYTES_MAX:
                return path
    raise Failure("No writable temporary directory has a path short enough for Unix sockets.")


def make_peer_directory(path: Path) -> None:
    """Create the folder of the peers' sockets with mode 0700, unless it exists.

    Raises Failure for an existing folder that another user may enter, because that user could forge
    frames.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_ours or stat.S_IMODE(status.st_mode) != 0o700:
        raise Failure(
            f"{path} exists and is not a directory that only you can enter (mode 0700). "
            "Remove it and try again."
        )


def remove_peer_directory(path: Path) -> None:
    """Remove the folder of sockets, if it exists."""
    if path.name.startswith("oncelog-") and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)

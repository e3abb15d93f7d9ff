"""Run a real Apache Kafka (KRaft, one process for each node) on loopback, for comparisons.

Maven fetches the jars once into a cache folder. With `ONCELOG_KAFKA=1` a Kafka that does not start
is a failure, never a skip.
"""

import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from ..programs import run_to_end

KAFKA_VERSION = "4.4.0"
CLUSTER_ID = "b25jZWxvZy10ZXN0LWlk00"
START_TIMEOUT_S = 90.0
JVM_FLAGS = ("-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def is_enabled() -> bool:
    """Return whether the tests may start Apache Kafka."""
    return os.environ.get("ONCELOG_KAFKA") == "1"


def jar_folder(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with Kafka's jars, which Maven fetches if the folder does not exist."""
    cache = Path(
        os.environ.get("ONCELOG_KAFKA_CACHE") or Path(tempfile.gettempdir()) / "oncelog-kafka"
    )
    wanted = Path(__file__).with_name("pom.xml")
    folder = cache / f"kafka-{version}-{zlib.crc32(wanted.read_bytes()):08x}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=cache))
    try:
        shutil.copy(wanted, work / "pom.xml")
        command = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"]
        command += [f"-Dkafka.version={version}"]
        done = run_to_end(command, 600)
        assert done.returncode == 0, f"Maven could not fetch Kafka's jars:\n{done.stdout[-2000:]}"
        try:
            (work / "jars").rename(folder)
        except OSError:
            assert folder.is_dir(), "another process was to have fetched the jars"
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _class_archive(jars: Path) -> Path:
    return jars.with_name(f"{jars.name}.jsa")


def archive_classes() -> None:
    """Store an archive of Kafka's loaded classes (JEP 350), once for this machine.

    With the archive a node starts in half the time, and a tool in two thirds. A JVM that cannot use
    or create the file runs without it.
    """
    archive = _class_archive(jar_folder())
    if archive.exists():
        return
    work = Path(tempfile.mkdtemp(dir=archive.parent))
    try:
        with KafkaPeer(work, flags=(f"-XX:ArchiveClassesAtExit={work / 'classes'}",)) as peer:
            peer.stop(1)
        if (work / "classes").exists():
            (work / "classes").rename(archive)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def java(
    main_class: str, *arguments: str, flags: Sequence[str] = (), version: str = KAFKA_VERSION
) -> list[str]:
    """Return the command that runs one of Kafka's classes in a JVM."""
    jars = jar_folder(version)
    if not any(flag.startswith("-XX") for flag in flags) and _class_archive(jars).exists():
        flags = (*flags, f"-XX:SharedArchiveFile={_class_archive(jars)}", "-Xlog:disable")
    return ["java", *JVM_FLAGS, *flags, QUIET, "-cp", f"{jars}/*", main_class, *arguments]


def java_source(file: Path, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a one-file Java program, which is compiled once per machine."""
    jars = jar_folder()
    classes = jars.with_name(f"{jars.name}.{file.stem}-{zlib.crc32(file.read_bytes()):08x}")
    if not classes.exists():
        work = Path(tempfile.mkdtemp(dir=jars.parent))
        done = run_to_end(
            ["javac", "-cp", f"{jars}/*", "-d", str(work / "classes"), str(file)], 300
        )
        assert done.returncode == 0, done.stderr[-2000:]
        with contextlib.suppress(OSError):  # another process has just done the same
            (work / "classes").rename(classes)
        shutil.rmtree(work)
    command = java(file.stem, *arguments, flags=flags)
    command[command.index("-cp") + 1] += f":{classes}"  # after the archive's classes
    return command


def run_tool(
    main_class: str,
    *arguments: str,
    timeout_s: float = 90,
    folder: Path | None = None,
    version: str = KAFKA_VERSION,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools, and return its completed process."""
    return run_to_end(java(main_class, *arguments, version=version), timeout_s, cwd=folder)


def free_ports(count: int) -> list[int]:
    """Return this number of free TCP ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _new_id() -> str:
    """Return a UUID as Kafka writes it, without a leading dash, which tools take for an option."""
    return "A" + base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")[1:]


class KafkaPeer:
    """A running Apache Kafka of `nodes` nodes, used as a context manager.

    The first `voters` of the nodes are also controllers, by default all of them. `started`: the
    number of nodes that the context manager starts, if the test starts the others later.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        voters: int | None = None,
        started: int | None = None,
        flags: Sequence[str] = (),
        format_options: Sequence[str] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        version: str = KAFKA_VERSION,
    ) -> None:
        self.folder, self.nodes, self._format_options = folder, nodes, format_options
        self._voters = nodes if voters is None else voters
        self._first = nodes if started is None else started
        ports = free_ports(nodes + self._voters)
        self._client_ports, self._controller_ports = ports[:nodes], ports[nodes:]
        self._settings, self._flags, self._version = settings, flags, version
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap line for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self._client_ports)

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Return host and port by node number."""
        return {i: ("127.0.0.1", port) for i, port in enumerate(self._client_ports, 1)}

    def __enter__(self) -> Self:
        try:
            for number in range(1, self._first + 1):
                self._start(number)
            self._wait_until_it_serves()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def start(self, number: int) -> None:
        """Start one more node, or a stopped node, and return when all nodes serve."""
        self._start(number)
        self._wait_until_it_serves()

    def stop(self, number: int) -> None:
        """Stop a node gracefully."""
        process = self._processes.pop(number)
        process.terminate()
        process.wait(60)

    def kill(self, number: int) -> None:
        """Send SIGKILL to a node, and wait until its process has ended. `start` restarts it."""
        process = self._processes.pop(number)
        process.kill()
        process.wait(60)

    def pause(self, number: int) -> None:
        """Send SIGSTOP to a node. Its connections stay open without answers."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Send SIGCONT to a node after `pause`."""
        self._processes[number].send_signal(signal.SIGCONT)

    def more_listeners(self) -> dict[str, int]:
        """Return the name and port of each listener, except the listener of the bootstrap line."""
        return {}

    def _start(self, number: int) -> None:
        voters = ",".join(f"{i}@127.0.0.1:{p}" for i, p in enumerate(self._controller_ports, 1))
        port = self._client_ports[number - 1]
        replication = str(min(3, self._first))
        roles, listeners = "broker", f"PLAINTEXT://127.0.0.1:{port}"
        if number <= self._voters:
            roles += ",controller"
            listeners += f",CONTROLLER://127.0.0.1:{self._controller_ports[number - 1]}"
        more = "".join(f",{name}://127.0.0.1:{p}" for name, p in self.more_listeners().items())
        settings = {
            "process.roles": roles,
            "node.id": str(number),
            "listeners": listeners + more,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}{more}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(
                (
                    "PLAINTEXT:PLAINTEXT",
                    "CONTROLLER:PLAINTEXT",
                    "SSL:SSL",
                    "TLS:SSL",
                    "LATE:SSL",
                    "SASL_SSL:SASL_SSL",
                    "SASL_PLAINTEXT:SASL_PLAINTEXT",
                )
            ),
            "controller.quorum.voters": voters,
            "log.dirs": str(self.folder / f"node-{number}"),
            "offsets.topic.replication.factor": replication,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": str(min(2, self._first)),
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"node-{number}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.folder / f"node-{number}").exists():
            self._format(number, file)
        with open(self.folder / f"node-{number}.log", "ab") as log:
            self._processes[number] = subprocess.Popen(
                java("kafka.Kafka", str(file), flags=self._flags, version=self._version),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _format(self, number: int, file: Path) -> None:
        """Format a node's directory with the stored output of Kafka's storage tool.

        The tool takes 2 s and runs once per machine, since its output depends only on the version,
        the options and some ids.
        """
        folder = self.folder / f"node-{number}"
        settings = self._settings.get("unstable.feature.versions.enable", "")
        wanted = " ".join((CLUSTER_ID, *self._format_options, settings))
        jars = jar_folder(self._version)
        kept = jars.with_name(f"{jars.name}.formatted-{zlib.crc32(wanted.encode()):08x}")
        if not kept.exists():
            options = ("-t", CLUSTER_ID, "-c", str(file), *self._format_options)
            tool = "kafka.tools.StorageTool"
            done = run_tool(tool, "format", *options, version=self._version)
            assert done.returncode == 0, (
                f"Kafka's storage could not be formatted:\n{done.stderr[-2000:]}"
            )
            work = Path(tempfile.mkdtemp(dir=kept.parent))
            shutil.copytree(folder, work / "formatted")
            with contextlib.suppress(OSError):  # another process has just done the same
                (work / "formatted").rename(kept)
            shutil.rmtree(work)
            return
        shutil.copytree(kept, folder)
        properties = folder / "meta.properties"
        ids = {"node.id": str(number), "directory.id": _new_id()}
        lines = [line.partition("=") for line in properties.read_text().splitlines()]
        assert "node.id" in {name for name, _, _ in lines}, lines
        new = (f"{name}{equals}{ids.get(name, value)}\n" for name, equals, value in lines)
        properties.write_text("".join(new))

    def _wait_until_it_serves(self) -> None:
        """Wait until every node answers Metadata v1 with all brokers of the cluster."""
        request = b"\0\3\0\1\0\0\0\1\0\1x" + b"\0\0\0\0"
        deadline = time.monotonic() + START_TIMEOUT_S
        for number, process in self._processes.items():
            port = self._client_ports[number - 1]
            while True:
                log = self.folder / f"node-{number}.log"
                assert process.poll() is None, f"Kafka ended:\n{log.read_text()[-2000:]}"
                assert time.monotonic() < deadline, (
                    f"Kafka does not serve:\n{log.read_text()[-2000:]}"
                )
                try:
                    with socket.create_connection(("127.0.0.1", port), 1) as connection:
                        connection.settimeout(2)
                        connection.sendall(len(request).to_bytes(4, "big") + request)
                        answer = connection.recv(4096)
                except OSError:
                    answer = b""
                if int.from_bytes(answer[8:12], "big") == len(self._processes) and len(answer) > 12:
                    break
                time.sleep(0.05)

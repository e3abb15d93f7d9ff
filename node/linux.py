"""What only Linux has: the files of its kernel about the machine and about processes.

Elsewhere each function says so: None, or what is true of a system that has no such thing.
"""

import os
from pathlib import Path

PROC = Path("/proc")
NAMESPACES = ("pid", "mnt")


def boot_id() -> str | None:
    """Return what changes at each start of the machine."""
    return _text("sys/kernel/random/boot_id")


def first_outgoing_port() -> int | None:
    """Return the lowest port that the kernel gives to outgoing connections."""
    numbers = (_text("sys/net/ipv4/ip_local_port_range") or "").split()
    return int(numbers[0]) if numbers else None


def processor_model() -> str | None:
    """Return the name of the machine's processor."""
    for line in (_text("cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def open_process_file(name: str, pid: int | None = None) -> int | None:
    """Open what the kernel says of a process, or of this one: `schedstat`, `stat`, `statm`."""
    try:
        return os.open(PROC / str(pid or "self") / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def shares_our_namespaces(pid: int) -> bool:
    """Whether process ids and paths mean the same to a process: it lives in no other container."""
    try:
        return all(
            os.readlink(PROC / str(pid) / "ns" / name) == os.readlink(PROC / "self/ns" / name)
            for name in NAMESPACES
        )
    except OSError:  # another user's, gone, or no such files
        return not (PROC / "self/ns").exists()


def _text(name: str) -> str | None:
    try:
        return (PROC / name).read_text().strip()
    except OSError:
        return None

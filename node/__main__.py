"""Run one broker in the foreground with `python -m oncelog.node --config FILE`."""

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from ..coordinator.raft.outcomes import CorruptJournal
from ..replication.peer.address import PeerSocketError, remove_sockets
from ..runtime.background_task import BACKGROUND_TASK, background_task, end_tasks
from ..storage.checkpoint import META_PROPERTIES
from ..storage.corrupt_file import CorruptFile
from ..storage.directory.lock import (
    DirectoryInUse,
    DirectoryOfAnother,
    DirectoryRemoved,
    identity,
    lock_inode,
    take_lock,
)
from ..storage.directory.log_directory import WrongCluster
from ..wire.errors import KafkaError
from ..wire.printable import printable
from .broker import Broker
from .clock import until_tenth_s
from .config.broker_config import BrokerConfig
from .config.tuning_keys import without_effect
from .log_format import INDENT, set_format
from .membership.liveness import Replaced

# Errors that an operator can fix. They are reported as one sentence, without a traceback.
_REPORTED_IN_WORDS = (
    CorruptFile,
    CorruptJournal,
    DirectoryInUse,
    DirectoryOfAnother,
    DirectoryRemoved,
    KafkaError,
    OSError,
    PeerSocketError,
    Replaced,
    ValueError,
    WrongCluster,
)


# A thread that computes, such as log recovery or compaction, holds the interpreter lock until
# another thread has waited this long. A request took 20 ms with Python's default of 5 ms, and takes
# 0.7 ms with this value.
SWITCH_INTERVAL_S = 0.0005
REMOVED_LOOK_S = 1.0


def _allow_many_files() -> None:
    """Raise the soft limit of open files to the hard limit, for many partitions and connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: BrokerConfig, make: Callable[[BrokerConfig], Broker]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if (words := without_effect(config.static_values)) is not None:
        logging.getLogger(__name__).info("%s", words)
    broker = make(config)
    broker.watchdog.start()
    try:
        loop.set_exception_handler(partial(_unhandled, broker))
        await _live(broker, stop)
    finally:
        # the watchdog's alarm would kill an interpreter that takes long to exit
        broker.watchdog.stop()


async def _live(broker: Broker, stop: asyncio.Event) -> None:
    # the first step takes the lock of the directory
    starting = asyncio.ensure_future(broker.start())
    interrupted = asyncio.ensure_future(stop.wait())
    watching = background_task("data directory", _raise_when_removed(broker.config))
    steps = {starting, interrupted, watching}
    await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
    interrupted.cancel()
    if watching.done():
        watching.result()
    if not starting.done():
        sys.exit(0)  # SIGTERM came during the start, so the next start runs a recovery
    starting.result()
    await broker.run(stop)
    await end_tasks(watching)
    await broker.stop()


async def _raise_when_removed(config: BrokerConfig) -> None:
    """Wait until the data directory has been removed, and raise DirectoryRemoved to end the broker.

    Later writes to the removed files would be lost.
    """
    directory, loop = config.log_directory, asyncio.get_running_loop()
    lock, place = lock_inode(directory), identity(directory)
    is_there = True
    while is_there:
        await asyncio.sleep(until_tenth_s(loop.time(), REMOVED_LOOK_S))
        with contextlib.suppress(OSError):  # a failing disk is handled elsewhere
            found = lock_inode(directory)
            if (
                found is None
                and identity(directory) == place
                and (directory / META_PROPERTIES).is_file()
            ):
                # Only the lock file is gone. Cleaners of /tmp delete files without recent writes.
                take_lock(directory)  # raises DirectoryInUse if another process has taken the lock
                lock = found = lock_inode(directory)
            is_there = found == lock
    remove_sockets(Path(config.peer_directory), config.node_id)
    raise DirectoryRemoved(f"its data directory {directory} has been removed")


def _unhandled(broker: Broker, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an unhandled exception, and end the broker if a background task raised the exception."""
    if BACKGROUND_TASK in context:
        broker.fail(context["message"], context["exception"])
    else:
        loop.default_exception_handler(context)


def main(
    arguments: list[str] | None = None, *, make: Callable[[BrokerConfig], Broker] = Broker
) -> int:
    """Run a broker until SIGTERM or SIGINT.

    Returns 0 after a clean shutdown, and 1 after a reported error.
    `make` creates the broker, so that tests can pass other threads, clocks and links.
    """
    parser = argparse.ArgumentParser(prog="oncelog node", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="server.properties of this node")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, handlers=[logging.StreamHandler(sys.stderr)])
    set_format("text")
    # logs, journals and snapshots hold every record, so only their owner may read them
    os.umask(0o077)
    _allow_many_files()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        config = BrokerConfig.from_file(options.config)
        set_format(config.log_format)
        uvloop.run(_serve(config, make))
    except _REPORTED_IN_WORDS as problem:
        logging.getLogger(__name__).debug("the broker process ends with an error", exc_info=True)
        first, *more = f"oncelog: this node stops: {problem}".split("\n")
        print(
            printable(first),
            *(INDENT + printable(line) for line in more),
            sep="\n",
            file=sys.stderr,
            flush=True,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

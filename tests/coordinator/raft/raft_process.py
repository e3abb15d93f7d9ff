"""One Raft node as a process, for the kill tests and the measurements.

usage: raft_process.py NODE VOTERS DIRECTORY OPTIONS (VOTERS and OPTIONS are JSON). All nodes of the
cluster share the directory. A node that leads a group submits unique numbers, and writes each
acknowledged number to a file. When a file `dump` exists, each node writes the content of its state
machines to a file.
"""

import asyncio
import gc
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack
import uvloop

from oncelog.coordinator.raft import RaftEngine, RaftGroup, RaftSettings
from oncelog.replication.messages import PeerMessage
from oncelog.replication.peer.transport import PeerTransport
from oncelog.runtime.sliced_work import Steps


class Numbers:
    """A state machine that lists all numbers. Additional bytes make its snapshots slow."""

    def __init__(self, ballast_bytes: int) -> None:
        self.ballast = b"b" * ballast_bytes
        self.items: list[int] = []

    def apply(self, command: bytes, index: int, term: int) -> int:
        self.items.append(int.from_bytes(command[:8], "big"))
        return len(self.items)

    def snapshot_steps(self) -> Steps[list[bytes]]:
        items = list(self.items)

        def steps() -> Steps[list[bytes]]:
            yield
            return [msgpack.packb([self.ballast, items])]

        return steps()

    def restore_steps(self, snapshot: bytes | memoryview) -> Steps[None]:
        yield
        self.ballast, self.items = msgpack.unpackb(snapshot)


class Process:
    """One Raft node with its engine and transport, which submits commands while it leads."""

    def __init__(self, node_id: int, voters: list[int], directory: Path, options: dict) -> None:
        self.node_id, self.directory, self.options = node_id, directory, options
        self.machines = [
            Numbers(options.get("ballast", 0)) for _ in range(options.get("groups", 1))
        ]
        self.loop = asyncio.get_running_loop()
        others = [voter for voter in voters if voter != node_id]
        self.transport = PeerTransport(
            node_id, directory / "peers", others, max_message_bytes=16 << 20
        )
        self.engine = RaftEngine(
            node_id=node_id,
            voters=voters,
            directory=directory / f"raft-{node_id}",
            send=lambda peer, frame: self.transport.send(peer, PeerMessage.RAFT, frame),
            loop=self.loop,
            executor=ThreadPoolExecutor(3),
            settings=RaftSettings(**options.get("settings", {})),
            random=random.Random(),
        )
        spread = options.get("spread", False)
        self.groups = [
            self.engine.add_group(
                g, machine, preferred_leader=voters[g % len(voters)] if spread else None
            )
            for g, machine in enumerate(self.machines)
        ]
        self.transport.on_message(PeerMessage.RAFT, self.engine.receive)
        self.transport.on_peer_change(self.on_peer_change)
        self.acknowledged = os.open(
            directory / f"acknowledged-{node_id}", os.O_CREAT | os.O_APPEND | os.O_WRONLY
        )
        self.last_failure_ms = 0.0

    def on_peer_change(self, peer: int, up: bool) -> None:
        (self.engine.peer_up if up else self.engine.peer_down)(peer)

    async def run(self) -> None:
        await self.engine.start()
        await self.transport.start()
        work = [
            asyncio.create_task(self.load(n)) for n in range(self.options.get("outstanding", 0))
        ]
        while not (self.directory / "end").exists():
            await asyncio.sleep(self.options.get("look_s", 0.02))
            self.write("status", [[g.is_leader, g.term, g.applied_index] for g in self.groups])
            if (self.directory / "dump").exists() and not self.path("items").exists():
                self.write("items", [machine.items for machine in self.machines])
        for task in work:
            task.cancel()

    async def load(self, worker: int) -> None:
        """Submit numbers of this worker, one after another, to a group while this node leads it."""
        number = (
            (self.node_id << 56) | (worker << 48) | (int(time.time() * 1_000) % (1 << 32) << 16)
        )
        group = self.groups[worker % len(self.groups)]
        stop = self.directory / "stop"
        while not stop.exists():
            if not group.is_leader:
                await asyncio.sleep(0.005)
                continue
            number += 1
            try:
                await group.submit(number.to_bytes(8, "big") + b"p" * 180, timeout_ms=3_000)
            except Exception:
                await asyncio.sleep(0.005)
            else:
                os.write(self.acknowledged, b"%d\n" % number)

    def path(self, name: str) -> Path:
        return self.directory / f"{name}-{self.node_id}"

    def write(self, name: str, value: Any) -> None:
        temporary = self.path(name).with_suffix(".tmp")
        temporary.write_text(json.dumps(value))
        temporary.rename(self.path(name))


async def measure(process: Process) -> dict[str, Any]:
    """Return the node's idle CPU time and the number of groups that it leads.

    A leader of group 0 adds its latencies with 1, 10 and 100 waiting commands.
    """
    import resource

    def cpu() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    await asyncio.sleep(process.options.get("settle", 6))
    begin = cpu()
    await asyncio.sleep(5)
    result: dict[str, Any] = {
        "node": process.node_id,
        "idle_cpu_percent": round((cpu() - begin) / 5 * 100, 2),
        "leads": sum(group.is_leader for group in process.groups),
    }
    if not process.groups[0].is_leader:
        return result
    for outstanding in (1, 10, 100):
        latencies: list[float] = []
        end = time.perf_counter() + 3

        async def work(group: RaftGroup, note: Callable[[float], None], end: float) -> None:
            while time.perf_counter() < end:
                start = time.perf_counter()
                await group.submit(b"v" * 200)
                note(time.perf_counter() - start)

        await asyncio.gather(
            *(work(process.groups[0], latencies.append, end) for _ in range(outstanding))
        )
        latencies.sort()
        n = len(latencies)
        result[f"at_{outstanding}"] = {
            "per_s": n // 3,
            "p50_ms": round(latencies[n // 2] * 1e3, 2),
            "p99_ms": round(latencies[n * 99 // 100] * 1e3, 2),
        }
    return result


async def main() -> None:
    node_id, voters, directory = int(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    options = json.loads(sys.argv[4])
    logging.basicConfig(filename=directory / f"log-{node_id}", level=logging.WARNING)
    gc.freeze()
    process = Process(node_id, voters, directory, options)
    if options.get("measure"):
        running = asyncio.create_task(process.run())
        process.write("measured", await measure(process))
        await running
    else:
        await process.run()


if __name__ == "__main__":
    uvloop.run(main())

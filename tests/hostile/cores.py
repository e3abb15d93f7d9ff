"""Attack decoders in this process with hostile bytes, for which they may raise only typed errors.

The decoders are those of requests, batches and messages between brokers, the TLS filter, and the
state machines of logins. An untyped error is printed with its input, and the exit code is 1. The
same seed and number of workers give the same inputs, except for the keys of TLS.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from queue import Empty
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from .decoders import Batches, Core, Input, PeerMessages, Requests
from .logins import Logins, Tls, write_keys

ROUND = 1_000  # inputs, of all cores by their shares
TOLD_EVERY_S = 5.0
SLOW_S = 0.5  # for one input of a few kB, which normally takes a thousandth of this


class Finding(NamedTuple):
    """An untyped error or a slow decode, with the input that causes it."""

    core: str
    data: Input
    problem: str


def cores_of(folder: Path) -> list[Core]:
    """Return all decoders to attack. `folder` has the certificates and the JWKS of `write_keys`."""
    return [Requests(), Batches(), PeerMessages(), Logins(folder), Tls(folder)]


def feed(core: Core, data: Input) -> Finding | None:
    """Decode an input, and return a finding for an untyped error or too much CPU time."""
    begun_s = time.perf_counter()
    try:
        core.feed(data)
    except core.errors:
        pass
    except Exception:
        return Finding(core.name, data, traceback.format_exc())
    if time.perf_counter() - begun_s < SLOW_S:
        return None
    begun_s = time.process_time()  # which takes longer to ask for than most inputs take
    with contextlib.suppress(*core.errors):
        core.feed(data)
    spent_s = time.process_time() - begun_s
    return Finding(core.name, data, f"it took {spent_s:.2f} s") if spent_s > SLOW_S else None


def attack(cores: Sequence[Core], rng: random.Random, inputs: int) -> list[Finding]:
    """Decode `inputs` inputs in all, and return at most one finding for each decoder."""
    found: dict[str, Finding] = {}
    left = inputs
    while left > 0:
        for core in cores:
            for _ in range(min(left, max(1, int(ROUND * core.share)))):
                left -= 1
                finding = feed(core, core.make(rng))
                if finding is not None:
                    found.setdefault(core.name, finding)
    return list(found.values())


def _work(cores: Sequence[Core], seed: str, inputs: int, told: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    rng = random.Random(seed)
    done = 0
    while done < inputs:
        count = min(20 * ROUND, inputs - done)
        told.put((count, attack(cores, rng, count)))
        done += count


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack the decoders, and return 0 if every input gave a result or a typed error, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.cores", description=__doc__)
    parser.add_argument("--inputs", metavar="N", type=int, default=1_000_000)
    parser.add_argument("--seed", metavar="S", type=int, default=random.getrandbits(32))
    parser.add_argument("--workers", metavar="N", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", metavar="CORE", default="", help="attack only this decoder")
    options = parser.parse_args(arguments)
    print(f"cores: {options.inputs:,} inputs, seed {options.seed}", flush=True)
    context = multiprocessing.get_context("fork")  # daemons: they end with this process
    with TemporaryDirectory() as folder:
        write_keys(Path(folder))
        cores = [each for each in cores_of(Path(folder)) if options.only in ("", each.name)]
        told, share = context.Queue(), -(-options.inputs // options.workers)
        workers = [
            context.Process(
                target=_work, args=(cores, f"{options.seed} {number}", share, told), daemon=True
            )
            for number in range(options.workers)
        ]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        for worker in workers:
            worker.start()
        return _follow(workers, told)


def _follow(workers: Sequence[Any], told: Any) -> int:
    begun_s = said_s = time.monotonic()
    done, found = 0, {}
    while True:
        is_over = not any(worker.is_alive() for worker in workers)
        try:
            while True:
                count, findings = told.get(timeout=0.0 if is_over else 0.5)
                done += count
                for finding in findings:
                    if finding.core not in found:
                        found[finding.core] = finding
                        print(f"{finding.core}: {finding.data!r}\n{finding.problem}", flush=True)
        except Empty:
            pass
        now_s = time.monotonic()
        if is_over or now_s - said_s > TOLD_EVERY_S:
            said_s = now_s
            print(f"{done:,} inputs, {done / (now_s - begun_s):,.0f}/s", flush=True)
        if is_over:
            break
    died = [worker.exitcode for worker in workers if worker.exitcode]
    if died:
        print(f"a worker has ended with {died}")
    print(f"{'RED' if found or died else 'ok'}: {len(found)} cores with other than typed errors")
    return 1 if found or died else 0


if __name__ == "__main__":
    sys.exit(main())

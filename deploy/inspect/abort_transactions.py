"""Ends open transactions: one by its id, or all whose ids begin alike (`oncelog txn abort`).

Those of Spark sinks are ended by the pipeline, in a process of its own: only it knows which of
them a query has decided to commit. All others are ended by a new session of their ids.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..cluster.failure import Failure
from ..cluster.lookup import admin_of, client_config

SINKS = "oncelog.spark."
MODULE = "oncelog.pipeline.sink.orphans"
TIMEOUT_S = 300.0


HAD = {
    "Ongoing": "aborted what it had open",
    "PrepareCommit": "it was being committed, and is",
    "PrepareAbort": "it was being aborted, and is",
}


def abort_id(
    data: Path, bootstrap: str | None, name: str, command_config: Path | None = None
) -> str:
    """What became of the transaction that a transactional id has open, in words."""
    if name.startswith(SINKS):
        found = _of_sinks(data, bootstrap, command_config, "--id", name)
        return "; ".join(f"{row['outcome']}: {row['reason']}" for row in found) or "nothing is open"
    with admin_of(data, bootstrap, command_config) as admin:
        before = admin.run(lambda a: a.transactions.describe(name))
        _, epoch = admin.run(lambda a: a.transactions.end(name))
    had = HAD.get(before.state, "it had nothing open")
    return f"{had}; the new session has epoch {epoch}, an older producer is fenced"


def abort_prefix(
    data: Path, bootstrap: str | None, prefix: str, command_config: Path | None = None
) -> list[dict[str, Any]]:
    """A row for each transaction that was open: id, outcome, reason."""
    rows: list[dict[str, Any]] = []
    with admin_of(data, bootstrap, command_config) as admin:
        listed = admin.run(
            lambda a: a.transactions.list_transactions(prefix=prefix, states=["Ongoing"])
        )
        names = [each.transactional_id for each in listed]
        for name in names:
            if not name.startswith(SINKS):
                _, epoch = admin.run(lambda a, name=name: a.transactions.end(name))
                reason = f"its producer is fenced: the new session has epoch {epoch}"
                rows.append({"id": name, "outcome": "aborted", "reason": reason})
    if any(name.startswith(SINKS) for name in names):
        rows += _of_sinks(data, bootstrap, command_config, "--prefix", prefix)
    return sorted(rows, key=lambda row: row["id"])


def _of_sinks(
    data: Path, bootstrap: str | None, command_config: Path | None, option: str, text: str
) -> list[dict[str, Any]]:
    where = client_config(data, bootstrap, command_config)["bootstrap.servers"]
    command = [sys.executable, "-P", "-m", MODULE, "--bootstrap", where, option, text]
    if command_config is not None:  # the file, not what is in it: everybody may see a command line
        command += ["--command-config", str(command_config)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failure(
            f"What sinks have open was not ended in {TIMEOUT_S:.0f} s. Are enough nodes up? "
            "See: oncelog ps"
        ) from None
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise Failure(f"What sinks have open could not be ended: {why[0]}")
    return json.loads(done.stdout)

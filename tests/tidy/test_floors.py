"""Test that product files import only from lower floors, and that files are short enough."""

import ast
from functools import cache
from pathlib import Path

import pytest

from .house import FILES, MAY_IMPORT, ROOT, parsed
from .packages import PYPROJECT, with_packages

pytestmark = pytest.mark.xdist_group("tidy")  # one worker, so that files are parsed once
IO_MODULES = {"asyncio", "socket", "threading", "time", "random", "zmq", "pysyncobj", "pyspark"}
SHELLS = {
    "runtime/background_task.py",
    "runtime/earliest_timer.py",
    "runtime/event_log.py",
    "runtime/garbage_collection.py",
    "runtime/sliced_work.py",
    "runtime/turn_share.py",
    "replication/peer/transport.py",
    "replication/peer/handlers.py",
    "replication/peer/requests.py",
    "replication/peer/sockets.py",
    "replication/peer/control.py",
    "replication/peer/streams.py",
    "client/connection.py",
    "client/produce/delivery.py",
    "client/retries.py",
    "client/long_work.py",
    "client/produce/topic_lookup.py",
    "client/security/listener_probe.py",
    "client/security/session.py",
    "client/security/tokens.py",
    "client/produce/sender.py",
    "client/fetch/fetcher.py",
    "client/groups/callbacks.py",
    "client/groups/member.py",
    "client/groups/consumer_member.py",
    "client/loop_thread.py",
    "client/blocking.py",
    "client/blocking_producer.py",
    "client/writer_pool/blocking_pool.py",
    "client/dual_write/blocking_writer.py",
    "client/dual_write/check_back_service.py",
    "client/dual_write/check_back_task.py",
    "client/dual_write/http_resolver.py",
    "client/writer_pool/pool.py",
    "client/dual_write/resolvers.py",
    "client/dual_write/shielded.py",
    "client/dual_write/writer.py",
    "client/dual_write/writer_flow.py",
    "client/outbox/outbox_flow.py",
    "client/outbox/relay.py",
    "client/cluster_view.py",
    "client/producer.py",
    "client/consumer.py",
    "client/admin.py",
    "ui/faults/",
    "ui/metrics_server.py",
    "ui/observer.py",
    "ui/paced_connection.py",
    "ui/record_reading.py",
    "ui/running.py",
    "ui/top.py",
    "ui/web/",
}


@cache
def imports(file: Path) -> tuple[set[str], set[str]]:
    """Return the product folders, and the packages outside the product, that a file imports."""
    depth = len(file.relative_to(ROOT).parts)  # two dots of node/broker.py reach the root
    siblings, outside = set[str](), set[str]()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            siblings |= {node.module.split(".")[0]} if node.module else {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            outside.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            outside |= {alias.name.split(".")[0] for alias in node.names}
    return siblings, outside


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_product_file_imports_only_from_lower_floors() -> None:
    wrong: list[str] = []
    for file in FILES:
        siblings, outside = imports(file)
        above = siblings - {"version"} - MAY_IMPORT[file.relative_to(ROOT).parts[0]]
        wrong += [f"{name(file)} -> {folder}" for folder in above]
        wrong += [f"{name(file)}: inside the house, imports are relative"] * ("oncelog" in outside)
    assert wrong == []


def test_product_core_file_does_no_io() -> None:
    shells = ("coordinator/raft/", "node/", "deploy/", "proof/", "cli/", "pipeline/", *SHELLS)
    cores = [file for file in FILES if not name(file).startswith(shells)]
    assert {name(f): found for f in cores if (found := imports(f)[1] & IO_MODULES)} == {}


def test_product_file_has_at_most_500_lines() -> None:
    sizes = {name(file): len(file.read_text().splitlines()) for file in FILES}
    assert {file: lines for file, lines in sizes.items() if lines > 500} == {}


def test_product_folder_with_code_is_packaged() -> None:
    assert PYPROJECT.read_text() == with_packages(PYPROJECT.read_text()), (
        "write them anew: .venv/bin/python -m tests.tidy.packages"
    )


def test_proof_files_outside_the_audit_do_not_import_the_pipeline() -> None:
    wrong = [name(file) for file in FILES if "pipeline" in imports(file)[0]]
    assert {file for file in wrong if not file.startswith(("pipeline/", "proof/audit/"))} == set()


def test_product_code_never_calls_when_of_a_loop_handle() -> None:
    """A TimerHandle of uvloop has no `when` if its delay rounds to 0 ms."""
    asked = [
        f"{name(file)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "when" and not node.args
    ]
    assert asked == []

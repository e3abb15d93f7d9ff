"""What all tests share: Kafka's jars for those that want them, and a last word on comparisons."""

import shutil
from typing import Any

import pytest

from .interop.comparison import COMPARED
from .interop.kafka_peer import archive_classes, is_enabled

pytest_plugins = ["pytester"]  # of tests/deploy/test_pytest_plugin.py
_WORKER_KEY = "oncelog_compared"


def pytest_configure(config: pytest.Config) -> None:
    """Once, before there are workers: they all need Kafka's jars."""
    if is_enabled() and shutil.which("java"):
        archive_classes()


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: Any = getattr(session.config, "workeroutput", None)  # of pytest-xdist
    if output is not None:
        output[_WORKER_KEY] = dict(COMPARED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    COMPARED.update(getattr(node, "workeroutput", {}).get(_WORKER_KEY, {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if COMPARED["answers"]:
        terminalreporter.write_line(
            f"compared with Apache Kafka: {COMPARED['answers']} answers, "
            f"{COMPARED['fields']} fields, {COMPARED['differences that are meant']} differences "
            "that are meant"
        )
    elif not is_enabled():
        terminalreporter.write_line("compared with Apache Kafka: nothing (ONCELOG_KAFKA is not 1)")

"""What all tests share: Kafka's jars for those that want them, and a last word on comparisons."""

import os
import shutil
from typing import Any

import pytest

from .interop.comparison import COMPARED
from .interop.kafka_peer import archive_classes, is_enabled, jar_folder

pytest_plugins = ["pytester"]  # of tests/deploy/test_pytest_plugin.py
_WORKER_KEY = "oncelog_compared"


def pytest_configure(config: pytest.Config) -> None:
    """Tests of the storage look for Kafka's dump tool by this variable, when they are read."""
    if is_enabled() and shutil.which("java") and "ONCELOG_KAFKA_LIB" not in os.environ:
        archive_classes()
        os.environ["ONCELOG_KAFKA_LIB"] = str(jar_folder())


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

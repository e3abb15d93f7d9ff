"""Hooks of pytest for all tests, with fixtures of Apache Kafka and settings of Hypothesis."""

import asyncio
import gc
import inspect
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator, AsyncExitStack
from typing import Any, cast

import pytest
import uvloop
from _pytest.assertion.rewrite import AssertionRewritingHook

from oncelog.wire.messages import control

from .compiled_once import compile_once
from .interop.client_peers import KAFKA, running
from .interop.comparison import COMPARED
from .interop.kafka_peer import KafkaPeer, archive_classes, is_enabled
from .loops import UvLoop, run_in_new_loop
from .pipeline.spark_session import spark  # noqa: F401 (a fixture)
from .rounds import ROUND, round_number, skipped

pytest_plugins = ["pytester"]  # of tests/proof/pytest_plugin/test_plugin.py
_WORKER_KEY = "oncelog_compared"
_TAKES_TURNS = "ONCELOG_TAKES_TURNS"
LONG = {"simulation", "switches", "demo", "prove"}  # folders with tests of half a minute
HANGS_AFTER_S = 600  # seconds after which a coroutine counts as hung


def pytest_configure(config: pytest.Config) -> None:
    """Prepare Hypothesis, Kafka's jars and the handlers of signals before the collection."""
    uvloop.new_event_loop = UvLoop  # also in the threads of blocking clients
    control.prepare(18, 0)  # before Hypothesis is there: kio would make strategies of its types
    from hypothesis import settings

    # No deadlines, because machines differ in speed. A test's own settings override these.
    settings.register_profile("oncelog", deadline=None, max_examples=60)
    settings.register_profile("thorough", deadline=None, max_examples=400)
    settings.register_profile("exhaustive", deadline=None, max_examples=10_000)
    settings.load_profile("oncelog")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if is_enabled() and shutil.which("java"):
        archive_classes()
    _compile_plugins_once()
    compile_once(config)
    if not hasattr(config, "workerinput"):  # xdist's workers receive what the main process decides
        is_whole = config.args_source is not pytest.Config.ArgsSource.ARGS
        asks = config.option.keyword or "in_turn" in config.option.markexpr
        os.environ[_TAKES_TURNS] = "1" if is_whole and not asks else ""
        os.environ[ROUND] = str(round_number())  # the same for all, though the day may end


def _take_turns(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect two thirds of the tests marked `in_turn`, which run on other days (`rounds`)."""
    heavy = {item.nodeid: item for item in items if item.get_closest_marker("in_turn")}
    others = skipped(round_number(), list(heavy))
    config.hook.pytest_deselected(items=[heavy[name] for name in others])
    items[:] = [item for item in items if item.nodeid not in others]


def pytest_runtest_setup() -> None:
    """Restore the SIGINT handler, which a Spark session of this process may have replaced.

    The handler of Spark would call a JVM that may have ended.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _compile_plugins_once() -> None:
    """Let pytest compile our plugin's package without rewriting its asserts.

    pytest would rewrite all modules of the package, which here is the whole project. If no bytecode
    may be written, each worker would compile hundreds of modules again.
    """
    for finder in sys.meta_path:
        if isinstance(finder, AssertionRewritingHook):
            finder._must_rewrite -= {"oncelog", "hypothesis"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order and group the tests, and skip those of Apache Kafka unless ONCELOG_KAFKA is 1.

    The tests of a module with its own fixtures stay in one worker, since otherwise each worker sets
    the fixtures up. Most fixtures of a module or session are a cluster, a JVM or a large log.

    Long tests run first, since the other workers would wait for the end of a long last test.
    """
    if os.environ.get(_TAKES_TURNS):
        _take_turns(config, items)
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
    for item in items:
        if item.get_closest_marker("kafka") and not is_enabled():
            item.add_marker(pytest.mark.skip(reason="ONCELOG_KAFKA is not 1"))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.filterwarnings("default"))  # pyspark's own, by the dozen
        fixtures: Any = getattr(item, "_fixtureinfo", None)  # pytest gives scopes nowhere else
        if fixtures is None or item.get_closest_marker("xdist_group"):
            continue
        if any(each[-1].scope == "module" for each in fixtures.name2fixturedefs.values() if each):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in a new event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    is_uvloop = pyfuncitem.get_closest_marker("uvloop") is not None
    run_in_new_loop(_with_fixtures(pyfuncitem), is_uvloop=is_uvloop)
    return True


async def _with_fixtures(test: pytest.Function) -> None:
    """Run an async test with its fixtures that are async context managers."""
    async with asyncio.timeout(HANGS_AFTER_S), AsyncExitStack() as stack:
        given = {name: test.funcargs[name] for name in inspect.signature(test.obj).parameters}
        for name, value in given.items():
            if isinstance(value, AsyncContextDecorator):  # the result of @asynccontextmanager
                manager = cast(AbstractAsyncContextManager[Any], value)
                given[name] = await stack.enter_async_context(manager)
        await test.obj(**given)


@pytest.fixture(scope="session")
def kafka_as_it_comes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the bootstrap address of an Apache Kafka with default settings."""
    with KafkaPeer(tmp_path_factory.mktemp("kafka")) as peer:
        yield peer.bootstrap


@pytest.fixture(scope="session")
def kafka_that_prepares(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the bootstrap address of an Apache Kafka with two-phase commit."""
    with running(KAFKA, tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


def pytest_collection_finish() -> None:
    """Freeze the collected tests, so that later garbage collections skip them."""
    gc.collect()
    gc.freeze()


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

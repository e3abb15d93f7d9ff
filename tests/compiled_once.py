"""Compile the modules of tests once, before xdist starts workers that would all compile them.

pytest rewrites the asserts of a test file, which is half of the cost of its collection. The next
run finds the results in __pycache__, even if Python is configured to write no bytecode.
"""

import contextlib
import os
import py_compile
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
)

ROOT = Path(__file__).parent


def compile_once(config: pytest.Config) -> None:
    """Compile all new files of tests/ in two processes, if pytest runs with xdist workers."""
    state = config.stash.get(assertstate_key, None)
    if state is None or hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):
        return
    files = [file for file in sorted(ROOT.rglob("*.py")) if _is_new(file)]
    child = os.fork()
    half = files[::2] if child else files[1::2]
    try:
        # The folder may be read-only. A file may have a syntax error, which its collection reports.
        with contextlib.suppress(OSError, SyntaxError, py_compile.PyCompileError):
            _compile(half, config, state)
    finally:
        if not child:
            os._exit(0)
    os.waitpid(child, 0)


def _cached(file: Path) -> Path:
    if file.name.startswith("test_") or file.name == "conftest.py":
        return get_cache_dir(file) / (file.stem + PYC_TAIL)
    return Path(cache_from_source(str(file)))


def _is_new(file: Path) -> bool:
    return _read_pyc(file, _cached(file)) is None


def _compile(files: Sequence[Path], config: pytest.Config, state: Any) -> None:
    for file in files:
        cached = _cached(file)
        if cached.name.endswith(PYC_TAIL):
            cached.parent.mkdir(exist_ok=True)
            source_stat, code = _rewrite_test(file, config)
            _write_pyc(state, code, source_stat, cached)
        else:
            py_compile.compile(str(file), doraise=True)

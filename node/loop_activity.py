"""What a broker is doing, read off the stack of its main thread when that keeps the event loop.

Nothing is noted down in advance, so a name costs nothing until it is wanted: the frames of a few
functions tell it by their local variables. The outermost that is known names the activity (the
request, the command, the job, the task), the innermost of ours says where it stood.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ..coordinator.metadata.commands import MalformedCommand, decode_command
from ..wire.messages.apis import APIS

ROOT = str(Path(__file__).resolve().parents[1])


def _request(variables: dict[str, Any]) -> str:
    header = variables.get("header")
    client = f" of client {header.client_id}" if header is not None and header.client_id else ""
    return f"request {APIS[variables['api'].key].name}{client}"


# By the qualified name of a function: what its local variables say of its work.
_NAMES: dict[str, Callable[[dict[str, Any]], str]] = {
    "Dispatcher.dispatch": _request,
    "Dispatcher._run.<locals>.run": _request,
    "ClusterState.apply_steps": lambda it: (
        f"command {type(decode_command(it['command'])[0]).__name__}"
    ),
    "TransactionShard.apply": lambda it: f"entry {it['index']} of a transaction shard",
    "SlicedWork._turn": lambda it: f"work {it['self'].running}",
}


def describe(frame: FrameType | None, task: "asyncio.Task[Any] | None") -> str:
    """Name what the stack that ends in `frame` does; `task` is the one that runs, if any."""
    name, where = "", ""
    for one in _stack(frame):
        tell = _NAMES.get(one.f_code.co_qualname)
        if tell is not None:
            # Right at its beginning a function has no variables to tell by.
            with suppress(KeyError, AttributeError, MalformedCommand):
                name = tell(one.f_locals)  # the outermost is met last
        if not where and one.f_code.co_filename.startswith(ROOT):
            file = one.f_code.co_filename[len(ROOT) + 1 :]
            where = f"{one.f_code.co_name} ({file}:{one.f_lineno})"
    if not name:
        name = f"task {task.get_name()}" if task is not None else "a callback"
    return f"{name}, in {where}" if where else name


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back

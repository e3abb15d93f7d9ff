"""The server of an application on loopback, which runs until a signal."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from ...deploy.cluster.ends.interrupts import ENDING
from ...deploy.cluster.failure import Failure

HOST = "127.0.0.1"
LAST_ANSWERS_S = 2


class _Server(uvicorn.Server):
    """A uvicorn server that installs no signal handlers, since this program has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening_socket(port: int | None) -> socket.socket:
    """Return a socket that listens on loopback at `port`, or at a free port if it is None.

    Raises Failure if the port is in use.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port or 0))
        sock.listen(64)
    except (OSError, OverflowError) as problem:
        sock.close()
        raise Failure(
            f"Port {port} of {HOST} cannot be used ({problem}): choose another --port.", exit_code=2
        ) from None
    return sock


async def serve(
    app: ASGIApp,
    sock: socket.socket,
    on_ready: Callable[[], None],
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Serve the application until SIGINT, SIGTERM or SIGHUP, or until the task is cancelled.

    on_ready: called before the first answer, when the socket already accepts connections. on_end:
    called at a signal and at the end, perhaps twice, to end streaming answers.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        ws="none",
        timeout_graceful_shutdown=LAST_ANSWERS_S,
        timeout_keep_alive=30,
        limit_concurrency=200,
    )
    server = _Server(config)

    def end() -> None:
        on_end()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    # A signal that is ignored, as under nohup, stays so.
    in_main = threading.current_thread() is threading.main_thread()
    heard = [n for n in ENDING if in_main and signal.getsignal(n) != signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, end)
    try:
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        on_ready()
        await serving
    finally:
        end()
        for number in heard:
            loop.remove_signal_handler(number)

"""A TCP proxy between clients and a broker, which a subclass can make delay or cut requests."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


class LoopbackProxy:
    """A proxy that listens on loopback while its context is open, and connects to `target`."""

    def __init__(self, target: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def forward(self) -> Callable[[bytes], object]:
        """Return a callback for a new connection, which gets the client's bytes before the broker.

        At the end of the client's bytes it gets b"".
        """
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self.target)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, broker]
            for way in ((client, broker, self.forward()), (broker, client, len)):
                pump = threading.Thread(target=_pump, args=way, daemon=True)
                self._threads.append(pump)
                pump.start()


def _pump(source: socket.socket, sink: socket.socket, forward: Callable[[bytes], object]) -> None:
    try:
        while data := source.recv(65536):
            forward(data)
            sink.sendall(data)
        forward(b"")
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return

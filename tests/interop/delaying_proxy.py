"""A way to a broker on which what clients send can be held up, connection by connection.

Bytes that are held travel on when they are let go, whatever their client has done in the meantime:
just as on a network that delivers late.
"""

import contextlib
import socket
import threading


class DelayingProxy:
    """Listens on loopback; use as a context manager."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> "DelayingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def hold(self) -> None:
        """What clients send from now on stays here."""
        self._open.clear()

    def let_go(self) -> None:
        """It goes on its way, and so does what comes."""
        self._open.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._target)
            self._sockets += [client, broker]
            for source, sink, is_held in ((client, broker, True), (broker, client, False)):
                pump = threading.Thread(
                    target=self._pump, args=(source, sink, is_held), daemon=True
                )
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_held: bool) -> None:
        try:
            while data := source.recv(65536):
                if is_held:
                    self._open.wait()
                sink.sendall(data)
            if is_held:
                self._open.wait()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

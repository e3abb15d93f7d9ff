"""The transport of broker 2 as a program, to which the tests of links send requests."""

import asyncio
import sys
from pathlib import Path

import uvloop

from oncelog.replication.peer.transport import PeerTransport

ECHO, SILENT, BROKEN, BULK, COUNT = 1, 2, 3, 4, 5
ONE_WAY = 1


async def serve(node_id: int, directory: Path) -> None:
    transport = PeerTransport(node_id, directory, [1, 2], max_message_bytes=1 << 24)
    told: list[bytes] = []

    def broken(*_: object) -> None:
        raise ValueError("on purpose")

    transport.on_message(ONE_WAY, lambda peer, payload: told.append(payload))
    transport.on_message(BROKEN, broken)
    transport.on_request(ECHO, lambda peer, header, frames, reply: reply(header, frames))
    transport.on_request(SILENT, lambda peer, header, frames, reply: None)
    transport.on_request(BROKEN, broken)
    transport.on_request(COUNT, lambda peer, header, frames, reply: reply(b"%d" % len(told), ()))
    transport.on_request(BULK, lambda peer, header, frames, reply: reply(header, frames), bulk=True)
    await transport.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))

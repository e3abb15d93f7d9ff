"""The client of a node's admin socket, which returns counters and injects faults on links.

The admin socket is a Unix socket beside the peers' sockets, for its owner only. Each side sends one
JSON object on a line.
"""

import json
import socket
from pathlib import Path
from typing import Any

from .failure import Failure

TIMEOUT_S = 2.0


def ask(
    peer_directory: Path,
    node_id: int,
    request: dict[str, Any],
    door: str = "admin",
    *,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """Send a request to a Unix socket of a node, and return the answer.

    `door` is "admin", or "faults" for a node of a chaos run. Raises Failure when the node does not
    answer or refuses the request.
    """
    path = peer_directory / f"{door}-{node_id}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer = json.loads(answers.readline())
    except (OSError, ValueError) as problem:
        raise Failure(
            f"Node {node_id} does not answer at {path} ({problem}). Is it running? oncelog ps"
        ) from None
    if "error" in answer:
        raise Failure(f"Node {node_id} refused: {answer['error']}.")
    return answer

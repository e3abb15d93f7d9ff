"""Names for clusters, as Kafka makes them."""

import base64
import os
from collections.abc import Callable


def new_cluster_id(random_bytes: Callable[[int], bytes] = os.urandom) -> str:
    """22 characters, as Kafka's random ids; never begins with a dash, which tools take badly."""
    while True:
        text = base64.urlsafe_b64encode(random_bytes(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text

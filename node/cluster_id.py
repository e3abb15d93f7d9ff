"""Cluster ids in Kafka's form."""

import base64
import os
from collections.abc import Callable


def new_cluster_id(random_bytes: Callable[[int], bytes] = os.urandom) -> str:
    """Return 22 random characters without a leading dash, which tools would read as an option."""
    while True:
        text = base64.urlsafe_b64encode(random_bytes(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text

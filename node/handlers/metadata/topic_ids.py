"""Topic ids (KIP-516), drawn by the broker that gets a request: applying must be deterministic."""

import base64
import uuid


def new_topic_id() -> bytes:
    """Return 16 random bytes; their base64, which Kafka's tools show, begins with no dash."""
    while True:
        topic_id = uuid.uuid4().bytes
        if not base64.urlsafe_b64encode(topic_id).startswith(b"-"):
            return topic_id

"""Topic ids (KIP-516), made where a topic is asked for: the replicated apply draws no lots."""

import base64
import uuid


def new_topic_id() -> bytes:
    """16 random bytes. In the base64 that Kafka's tools show, it begins with no dash."""
    while True:
        topic_id = uuid.uuid4().bytes
        if not base64.urlsafe_b64encode(topic_id).startswith(b"-"):
            return topic_id

"""New topic ids (KIP-516).

The broker that receives a CreateTopics request chooses the random ids and puts them into the
command, since every node must get the same result when it applies the command.
"""

import base64
import uuid


def new_topic_id() -> bytes:
    """Return 16 random bytes whose base64 form, which Kafka's tools show, begins without a dash."""
    while True:
        topic_id = uuid.uuid4().bytes
        if not base64.urlsafe_b64encode(topic_id).startswith(b"-"):
            return topic_id

"""oncelog: a replicated, exactly-once log cluster that speaks the Kafka protocol.

The checkout is the package. This file stays thin: pytest imports it under the folder's
name, and whatever it imported would be loaded twice.
"""

from typing import Any

from .version import __version__ as __version__


def __getattr__(name: str) -> Any:
    """Hand on `Cluster` and `prove` lazily: importing a part of the house loads only that part."""
    if name == "Cluster":
        from .deploy.cluster.local_cluster import Cluster

        return Cluster
    if name == "prove":
        from .proof.prove.api import prove

        return prove
    raise AttributeError(f"module 'oncelog' has no attribute {name!r}")

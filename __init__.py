"""oncelog: a replicated, exactly-once log cluster that speaks the Kafka protocol.

The root of the checkout is the package. This file imports only the version, because pytest imports
the file a second time, under the folder's name, and all of its imports would be loaded twice.
"""

from typing import Any

from .version import __version__ as __version__


def __getattr__(name: str) -> Any:
    """Import `Cluster` or `prove` at its first use, since `import oncelog` must stay fast."""
    if name == "Cluster":
        from .deploy.cluster.local_cluster import Cluster

        return Cluster
    if name == "prove":
        from .proof.prove.api import prove

        return prove
    raise AttributeError(f"module 'oncelog' has no attribute {name!r}")

"""The cluster and the databases of the dual writes."""

from ..dual_write.conftest import bootstrap, cluster, database, ledger, server, topic

__all__ = ["bootstrap", "cluster", "database", "ledger", "server", "topic"]

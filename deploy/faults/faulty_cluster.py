"""A local cluster with nodes that accept faults inside their processes."""

import shutil
from pathlib import Path
from typing import Any

from ..cluster import admin_socket_client
from ..cluster.failure import Failure
from ..cluster.local_cluster import Cluster
from ..cluster.node_process import NodeProcess

KEPT_OF_A_WIPED_NODE = frozenset({"node.log", "server.properties"})


class FaultyNode(NodeProcess):
    """The process of a node that runs the program faulty_node.py."""

    module = "oncelog.deploy.faults.faulty_node"


class FaultyCluster(Cluster):
    """A local cluster of nodes that accept requests for faults of their disk, clock and process."""

    node_type = FaultyNode

    def ask_faults(self, node_id: int, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to a node's socket for faults (node_faults.py) and return the answer.

        Raises Failure when the node does not answer.
        """
        return admin_socket_client.ask(Path(self.file.peer_directory), node_id, request, "faults")

    def wipe(self, node_id: int) -> None:
        """Remove all data of a stopped node except node.log and server.properties."""
        node = self.node(node_id)
        if node.find(thorough=True) is not None:
            raise Failure(f"Node {node_id} runs: stop it before its data is removed.")
        for each in node.directory.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            elif each.name not in KEPT_OF_A_WIPED_NODE:
                each.unlink()

"""The cluster's metadata as a replicated state machine. Begin with cluster_state.py."""

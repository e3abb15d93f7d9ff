"""The cluster's metadata as a replicated state machine; begin with cluster_state.py."""

"""pipeline/progress: reports on running queries. Begin with lag.py, then listener.py."""

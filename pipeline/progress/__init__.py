"""Reports on running queries. Begin with lag.py, then listener.py."""

"""Reports on running queries; begin with lag.py, then listener.py."""

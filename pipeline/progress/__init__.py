"""pipeline/progress: what people watch of a query; begin with lag.py, then listener.py."""

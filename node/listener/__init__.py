"""node/listener: clients' connections: frames in, answers out, in order, within bounds.

Begin with server.py, connection.py, dispatch.py.
"""

"""node/listener: the connections of clients, their requests and answers.

Begin with server.py, connection.py, dispatch.py.
"""

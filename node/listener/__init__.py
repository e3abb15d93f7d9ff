"""The connections of clients, with their requests and answers.

Begin with server.py, connection.py, dispatch.py.
"""

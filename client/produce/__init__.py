"""The sending side of a client, from a record to its acknowledgement. Begin with sender.py."""

"""The bodies of Kafka messages, with hand-written codecs for Produce and Fetch.

The codecs of all other messages are generated from the schemas of kio.
"""

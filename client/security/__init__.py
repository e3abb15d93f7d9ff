"""client/security: TLS and SASL of the client's connections.

What it is: the meaning of Kafka's `security.protocol`, `ssl.*` and `sasl.*` (config, jaas), the
exchanges of PLAIN, SCRAM and OAUTHBEARER as pure cores (scram, mechanisms, oauthbearer, exchange),
and a small shell around them (tls, tokens, session). What it is not: the brokers' side. Begin with
session.py; a connection knows nothing else of this folder.
"""

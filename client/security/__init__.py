"""TLS and SASL of the client's connections.

This folder contains the meaning of Kafka's `security.protocol`, `ssl.*` and `sasl.*` (config,
jaas), the exchanges of PLAIN, SCRAM and OAUTHBEARER as pure cores (scram, mechanisms, oauthbearer,
exchange), and a small shell around these cores (tls, tokens, session). The brokers' side is
elsewhere. Begin with session.py, the only module that a connection uses.
"""

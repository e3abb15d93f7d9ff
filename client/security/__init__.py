"""TLS and SASL of the client's connections.

This folder contains the meaning of Kafka's `security.protocol`, `ssl.*` and `sasl.*` (config), the
exchanges of PLAIN, SCRAM and OAUTHBEARER as pure cores (scram, oauthbearer, exchange), and a small
shell around these cores (tls, tokens, session). The brokers' side is in `wire/security`, which also
reads `sasl.jaas.config`. Begin with session.py.
"""

"""client/security: TLS and SASL of the client's connections.

It contains the meaning of Kafka's `security.protocol`, `ssl.*` and `sasl.*` (config, jaas), the
exchanges of PLAIN, SCRAM and OAUTHBEARER as pure cores (scram, mechanisms, oauthbearer, exchange),
and a small shell around them (tls, tokens, session). It does not contain the brokers' side. Begin
with session.py, the only module that a connection uses.
"""

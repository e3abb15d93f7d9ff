"""proof: what is proved and measured on a cluster: judge, chaos, prove, demo, bench, conformance.

`judge` reads histories and logs and names what an exactly-once log may not show; `chaos`, `demo`
and `prove` break a cluster under load and hand it what they saw; `bench` measures; `conformance`
compares a cluster with Apache Kafka; `audit` is the judge of raw logs on Spark; `pytest_plugin`
gives clusters to tests. They speak to a cluster by the Kafka protocol, so that all but the
launcher also run against Apache Kafka. Floor 7: stands on deploy.
"""

"""proof: everything that tests or measures a cluster or an application.

`judge` reads histories and logs, and reports violations of exactly once. `chaos`, `demo` and
`prove` make faults under load, and give the judge what they observed. `bench` measures.
`conformance` compares a cluster with Apache Kafka. `audit` is the judge of raw logs on Spark.
`pytest_plugin` starts clusters for tests. All of them use the Kafka protocol, so all but the
launcher also run against Apache Kafka. Floor 7, above deploy.
"""

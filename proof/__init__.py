"""Everything that tests or measures a cluster or an application.

`judge` reads histories and logs, and reports violations of exactly once. `chaos`, `demo` and
`prove` inject faults under load, and pass their observations to the judge. `bench` measures.
`conformance` compares a cluster with Apache Kafka. `audit` is the judge of raw logs on Spark.
`certify` tests whether other systems on Kafka keep the guarantees that they promise.
`pytest_plugin` starts clusters for tests. All of them are clients of the Kafka protocol, so all
parts that do not start or kill nodes themselves also run against Apache Kafka.
"""

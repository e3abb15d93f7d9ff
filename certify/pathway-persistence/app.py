"""Orders become invoices, with Pathway."""

import os

import pathway as pw

settings = {
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    "group.id": os.environ["ONCELOG_GROUP"],
    "auto.offset.reset": "earliest",
}
orders = pw.io.kafka.read(
    settings, os.environ["ONCELOG_IN"], format="raw", autocommit_duration_ms=500, name="orders"
)
pw.io.kafka.write(
    orders, settings, os.environ["ONCELOG_OUT"], format="raw", key=orders.key, value=orders.data
)
backend = pw.persistence.Backend.filesystem(os.environ["STATE"])
pw.run(
    persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=500),
    monitoring_level=pw.MonitoringLevel.NONE,
)

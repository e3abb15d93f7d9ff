"""Orders become invoices, with Pathway."""

import os

import pathway as pw


class Order(pw.Schema):
    id: str
    number: int
    customer: str
    amount: int


settings = {
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    "group.id": "invoicing",
    "auto.offset.reset": "earliest",
}
orders = pw.io.kafka.read(
    settings, os.environ["ONCELOG_IN"], schema=Order, format="json", autocommit_duration_ms=500,
    name="orders",
)  # fmt: skip
pw.io.kafka.write(orders, settings, os.environ["ONCELOG_OUT"], format="json")
backend = pw.persistence.Backend.filesystem(os.environ["STATE"])
pw.run(
    persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=500),
    monitoring_level=pw.MonitoringLevel.NONE,
)

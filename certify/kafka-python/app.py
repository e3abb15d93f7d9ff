"""Orders become invoices: sent, waited for, then the offsets are committed."""

import os

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"].split(",")
consumer = KafkaConsumer(
    os.environ["ONCELOG_IN"],
    bootstrap_servers=servers,
    group_id=os.environ["ONCELOG_GROUP"],
    auto_offset_reset="earliest",
    enable_auto_commit=False,
)
producer = KafkaProducer(bootstrap_servers=servers)
while True:
    found = consumer.poll(timeout_ms=200)
    futures = [
        producer.send(os.environ["ONCELOG_OUT"], key=message.key, value=message.value)
        for messages in found.values()
        for message in messages
    ]
    for future in futures:
        future.get(timeout=60)
    if futures:
        consumer.commit()

"""A client process that writes numbered records until its standard input ends.

    python producer_process.py confluent|kafka-python BOOTSTRAP TOPIC PARTITIONS NAME RATE FILE

Record n of this process goes to partition n % PARTITIONS with the value NAME:n. FILE gets a line
"partition offset value" for each acknowledgement, and at the end one line of JSON.
"""

import json
import sys
import threading
import time
from typing import Any

FLUSH_S = 90


def confluent(bootstrap: str, report: Any) -> tuple[Any, Any, list[str]]:
    """Return the functions to send and to flush, and a list to which fatal errors are added."""
    from confluent_kafka import Producer

    fatal: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "message.timeout.ms": 120_000,
            "log_level": 0,
            "error_cb": lambda error: fatal.append(str(error)) if error.fatal() else None,
        }
    )

    def send(topic: str, partition: int, value: bytes) -> bool:
        try:
            producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda error, message: report(
                    error, message.partition(), message.offset(), message.value()
                ),
            )
        except BufferError:
            producer.poll(0.05)
            return False
        producer.poll(0)
        return True

    return send, lambda: producer.flush(FLUSH_S), fatal


def kafka_python(bootstrap: str, report: Any) -> tuple[Any, Any, list[str]]:
    import logging

    from kafka import KafkaProducer

    logging.disable(logging.CRITICAL)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        enable_idempotence=True,
        acks="all",
        linger_ms=2,
        retries=2**31 - 1,
        retry_backoff_ms=20,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        delivery_timeout_ms=120_000,
        request_timeout_ms=10_000,
        max_block_ms=60_000,
    )

    def send(topic: str, partition: int, value: bytes) -> bool:
        future = producer.send(topic, value, partition=partition)
        future.add_callback(lambda at: report(None, at.partition, at.offset, value))
        future.add_errback(lambda error: report(error, partition, -1, value))
        return True

    return send, lambda: producer.flush(FLUSH_S), []


def main() -> None:
    """Write until standard input ends, then wait for the requests in flight."""
    library, bootstrap, topic, partitions, name, rate, file = sys.argv[1:]
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    failed: list[str] = []
    count = sent = 0
    with open(file, "w", buffering=1 << 16) as out:

        def report(error: Any, partition: int, offset: int, value: bytes) -> None:
            nonlocal count
            if error is not None:
                failed.append(str(error))
            else:
                count += 1
                out.write(f"{partition} {offset} {value.decode()}\n")

        make = confluent if library == "confluent" else kafka_python
        send, flush, fatal = make(bootstrap, report)
        started = time.monotonic()
        while not stop.is_set():
            due = int((time.monotonic() - started) * float(rate))
            while sent < due and not stop.is_set():
                if not send(topic, sent % int(partitions), f"{name}:{sent}".encode()):
                    break
                sent += 1
            time.sleep(0.002)
        flush()
        summary = {"sent": sent, "acknowledged": count, "failed": failed[:5], "fatal": fatal[:5]}
        out.write(json.dumps(summary) + "\n")


if __name__ == "__main__":
    main()

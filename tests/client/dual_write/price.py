"""Measure the time of a transfer by dual write, by outbox, and in the database or Kafka alone.

    python -m tests.client.dual_write.price [--count 200]

The cluster has three nodes, with SQLite and PostgreSQL on the same disk. One client makes one
transfer at a time. The program prints the median and the 99th percentile.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oncelog.client import BlockingAdmin, BlockingDualWriter, BlockingOutboxWriter, BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster

from .ledger import Ledger, sqlite_ledger
from .postgresql import postgresql

VALUE = b"x" * 200


def measured(count: int, transfer: Callable[[int], None]) -> str:
    for number in range(20):
        transfer(number)
    times: list[float] = []
    for number in range(20, 20 + count):
        began = time.perf_counter()
        transfer(number)
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    return f"{times[count // 2]:.1f} / {times[count * 99 // 100]:.1f}"


def plain(ledger: Ledger, count: int) -> str:
    connection = ledger.create().connect()
    cursor = connection.cursor()

    def transfer(number: int) -> None:
        cursor.execute(ledger.insert, (number, 5))
        connection.commit()

    found = measured(count, transfer)
    connection.close()
    return found


def in_outbox(ledger: Ledger, count: int) -> str:
    with BlockingOutboxWriter("price-outbox", ledger.create().connect) as writer:

        def transfer(number: int) -> None:
            with writer.transaction() as work:
                work.execute(ledger.insert, (number, 5))
                work.send("price", VALUE)

        return measured(count, transfer)


def in_kafka(bootstrap: str, count: int) -> str:
    with BlockingProducer(bootstrap, transactional_id="price", linger_ms=0) as producer:
        producer.init_transactions()

        def transfer(_: int) -> None:
            producer.begin_transaction()
            producer.send("price", VALUE)
            producer.commit_transaction()

        return measured(count, transfer)


def dual(bootstrap: str, ledger: Ledger, count: int) -> str:
    with BlockingDualWriter(bootstrap, "price", ledger.create().connect, linger_ms=0) as writer:

        def transfer(number: int) -> None:
            with writer.transaction() as work:
                work.execute(ledger.insert, (number, 5))
                work.send("price", VALUE)

        return measured(count, transfer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    count = parser.parse_args().count
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(nodes=3, data=Path(folder) / "data") as cluster,
        postgresql() as server,
    ):
        with BlockingAdmin(cluster.bootstrap) as admin:
            admin.create_topic("price", partitions=1)
        cluster.wait_for_isr("price", 3)
        print(f"a transaction of Kafka alone: {in_kafka(cluster.bootstrap, count)} ms")
        ledgers = {
            "sqlite": sqlite_ledger(Path(folder) / "ledger"),
            "PostgreSQL": Ledger(server.connect, "%s"),
        }
        for name, ledger in ledgers.items():
            print(f"{name}: {plain(ledger, count)} ms alone")
            print(f"{name}: {in_outbox(ledger, count)} ms with a row of an outbox")
            print(f"{name}: {dual(cluster.bootstrap, ledger, count)} ms as a dual write")


if __name__ == "__main__":
    main()

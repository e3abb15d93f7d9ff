"""Write transactions to a real topic, for audits of that topic."""

from oncelog.client.producer import Producer


async def write(bootstrap: str, topic: str, *, plain_records: int) -> None:
    """Run six transactions with a record in each of two partitions, and abort every third.

    Afterwards `plain_records` records are sent without a transaction.
    """
    for number in range(6):
        async with Producer(bootstrap, transactional_id="writer") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for partition in (0, 1):
                await producer.send(topic, b"%d" % number, partition=partition)
            await producer.flush()
            await (
                producer.abort_transaction() if number % 3 == 2 else producer.commit_transaction()
            )
    async with Producer(bootstrap) as plain:
        for number in range(plain_records):
            await plain.send(topic, b"%d" % number)
        await plain.flush()

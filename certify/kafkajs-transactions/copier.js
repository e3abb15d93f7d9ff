// Orders become invoices: outputs and offsets in one transaction of kafkajs.
const { Kafka, logLevel } = require('kafkajs')

const { KAFKA_BOOTSTRAP_SERVERS, ONCELOG_IN, ONCELOG_OUT, ONCELOG_INSTANCE } = process.env
const kafka = new Kafka({
  clientId: 'invoicing', brokers: KAFKA_BOOTSTRAP_SERVERS.split(','), logLevel: logLevel.ERROR,
})
const consumer = kafka.consumer({ groupId: 'invoicing' })
const producer = kafka.producer({
  transactionalId: `invoicing-${ONCELOG_INSTANCE}`, maxInFlightRequests: 1, idempotent: true,
})

async function invoice({ batch, heartbeat }) {
  const transaction = await producer.transaction()
  try {
    const messages = batch.messages.map(({ key, value }) => ({ key, value }))
    await transaction.send({ topic: ONCELOG_OUT, messages })
    const offset = (BigInt(batch.lastOffset()) + 1n).toString()
    const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: 'invoicing', topics })
    await transaction.commit()
  } catch (problem) {
    await transaction.abort()
    throw problem // the batch is read again
  }
  await heartbeat()
}

async function main() {
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topic: ONCELOG_IN, fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatch: invoice })
}

process.on('SIGTERM', () => consumer.disconnect().finally(() => process.exit(0)))
main().catch((problem) => {
  console.error(problem)
  process.exit(1)
})

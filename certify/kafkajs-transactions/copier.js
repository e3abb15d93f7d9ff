// Orders become invoices: outputs and offsets in one transaction of kafkajs. As its page says, a
// transactionalId belongs to one partition of the input, whichever instance reads it.
const { Kafka, logLevel } = require('kafkajs')

const { KAFKA_BOOTSTRAP_SERVERS, ONCELOG_IN, ONCELOG_OUT, ONCELOG_GROUP } = process.env
const kafka = new Kafka({
  clientId: 'invoices', brokers: KAFKA_BOOTSTRAP_SERVERS.split(','), logLevel: logLevel.ERROR,
})
const consumer = kafka.consumer({ groupId: ONCELOG_GROUP })
const producers = new Map()

async function producerOf(topic, partition) {
  const transactionalId = `${ONCELOG_GROUP}-${topic}-${partition}`
  if (!producers.has(transactionalId)) {
    const producer = kafka.producer({ transactionalId, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    producers.set(transactionalId, producer)
  }
  return producers.get(transactionalId)
}

async function invoice({ batch, heartbeat }) {
  const producer = await producerOf(batch.topic, batch.partition)
  const transaction = await producer.transaction()
  try {
    const messages = batch.messages.map(({ key, value }) => ({ key, value }))
    await transaction.send({ topic: ONCELOG_OUT, messages })
    const offset = (BigInt(batch.lastOffset()) + 1n).toString()
    const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: ONCELOG_GROUP, topics })
    await transaction.commit()
  } catch (problem) {
    await transaction.abort()
    throw problem // the batch is read again
  }
  await heartbeat()
}

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topic: ONCELOG_IN, fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatch: invoice })
}

process.on('SIGTERM', () => consumer.disconnect().finally(() => process.exit(0)))
main().catch((problem) => {
  console.error(problem)
  process.exit(1)
})

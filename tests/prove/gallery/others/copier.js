// kafkajs: transactions of the first kind, and no group metadata in them.
const { Kafka, logLevel } = require('kafkajs')

const { KAFKA_BOOTSTRAP_SERVERS, ONCELOG_IN, ONCELOG_OUT, ONCELOG_INSTANCE } = process.env
const kafka = new Kafka({
  clientId: ONCELOG_INSTANCE,
  brokers: KAFKA_BOOTSTRAP_SERVERS.split(','),
  logLevel: logLevel.ERROR,
})
const consumer = kafka.consumer({ groupId: 'gallery' })

async function transactional() {
  const producer = kafka.producer({
    transactionalId: `copy-${ONCELOG_INSTANCE}`, maxInFlightRequests: 1, idempotent: true,
  })
  await producer.connect()
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      const transaction = await producer.transaction()
      try {
        const messages = batch.messages.map(({ key, value }) => ({ key, value }))
        await transaction.send({ topic: ONCELOG_OUT, messages })
        const end = (BigInt(batch.lastOffset()) + 1n).toString()
        const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset: end }] }]
        await transaction.sendOffsets({ consumerGroupId: 'gallery', topics })
        await transaction.commit()
      } catch (problem) {
        await transaction.abort()
        throw problem
      }
      await heartbeat()
    },
  })
}

async function plain() {
  const producer = kafka.producer()
  await producer.connect()
  await consumer.run({
    eachMessage: async ({ message: { key, value } }) => {
      await producer.send({ topic: ONCELOG_OUT, messages: [{ key, value }] })
    },
  })
}

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topics: [ONCELOG_IN], fromBeginning: true })
  await { transactional, plain }[process.argv[2]]()
}

process.on('SIGTERM', () => consumer.disconnect().finally(() => process.exit(0)))
main().catch((problem) => { console.error(problem); process.exit(1) })

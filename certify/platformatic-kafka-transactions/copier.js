// Orders become invoices: outputs and offsets in one transaction of @platformatic/kafka. As its page
// says, the transactionalId is the same at each start, and the consumer commits nothing by itself.
const { Consumer, Producer, MessagesStreamModes, MessagesStreamFallbackModes, FetchIsolationLevels } =
  require('@platformatic/kafka')

const { KAFKA_BOOTSTRAP_SERVERS, ONCELOG_IN, ONCELOG_OUT, ONCELOG_GROUP, ONCELOG_INSTANCE } = process.env
const bootstrapBrokers = KAFKA_BOOTSTRAP_SERVERS.split(',')
const producer = new Producer({
  clientId: 'invoices',
  bootstrapBrokers,
  idempotent: true,
  transactionalId: `${ONCELOG_GROUP}-${ONCELOG_INSTANCE}`,
})
const consumer = new Consumer({ clientId: 'invoices', bootstrapBrokers, groupId: ONCELOG_GROUP })

async function invoice(order) {
  const transaction = await producer.beginTransaction()
  try {
    await transaction.addConsumer(consumer)
    await transaction.send({ messages: [{ topic: ONCELOG_OUT, key: order.key, value: order.value }] })
    await transaction.addOffset(order)
    await transaction.commit()
  } catch (problem) {
    await transaction.abort()
    throw problem // the order is read again at the next start
  }
}

async function main() {
  const orders = await consumer.consume({
    topics: [ONCELOG_IN],
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: MessagesStreamFallbackModes.EARLIEST,
    autocommit: false,
    isolationLevel: FetchIsolationLevels.READ_COMMITTED,
  })
  for await (const order of orders) await invoice(order)
}

process.on('SIGTERM', () => process.exit(0))
main().catch((problem) => {
  console.error(problem)
  process.exit(1)
})

// node client.js BOOTSTRAP ACTION: what test_kafkajs.py asks of kafkajs; one line of JSON at the end.
"use strict";
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [bootstrap, action] = process.argv.slice(2);
const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: bootstrap.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 20 },
});

// rejects when a consumer ends for good
const crashed = (consumer) => new Promise((_, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
});

async function read(topic, groupId, count) {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200 });
  const rows = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const all = new Promise((resolve) => {
    consumer.run({ eachMessage: async ({ partition, message }) => {
      rows.push([partition, message.key?.toString() ?? null, message.value?.toString() ?? null,
        Object.fromEntries(Object.entries(message.headers).map(([k, v]) => [k, v.toString()]))]);
      if (rows.length >= count) resolve();
    } });
  });
  await Promise.race([all, crashed(consumer)]);
  await consumer.disconnect(); // commits its position
  return rows;
}

async function writeAndRead() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ waitForLeaders: true,
    topics: [{ topic: "js", numPartitions: 3, replicationFactor: 3 }] });
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  for (const [first, compression] of [[0, CompressionTypes.None], [500, CompressionTypes.GZIP]]) {
    const messages = [];
    for (let i = first; i < first + 500; i++)
      messages.push({ key: `k${i % 50}`, value: `${i}`, headers: { number: `${i}` } });
    messages[7].value = null;
    await producer.send({ topic: "js", acks: -1, compression, messages });
  }
  await producer.disconnect();
  const rows = await read("js", "js-readers", 1000);
  const ends = await admin.fetchTopicOffsets("js");
  const [{ partitions: committed }] = await admin.fetchOffsets({ groupId: "js-readers", topics: ["js"] });
  const { groups } = await admin.describeGroups(["js-readers"]);
  const { topics } = await admin.fetchTopicMetadata({ topics: ["js"] });
  await admin.deleteTopicRecords({ topic: "js", partitions: [{ partition: 0, offset: "3" }] });
  const low = (await admin.fetchTopicOffsets("js")).find((p) => p.partition === 0).low;
  await admin.deleteGroups(["js-readers"]);
  const left = (await admin.listGroups()).groups.map((group) => group.groupId);
  await admin.deleteTopics({ topics: ["js"] });
  await admin.disconnect();
  return { rows, ends, committed, state: groups[0].state, low, left,
    partitions: topics[0].partitions.map((p) => [p.partitionId, p.isr.length]) };
}

// consume -> transform -> produce with the offsets in the transaction; every third one is first aborted
async function transactions() {
  const count = Number(process.argv[4]), group = "js-copiers", topic = "js-input";
  const admin = kafka.admin();
  await admin.connect();
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 10_000, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const connected = async () => {
    const producer = kafka.producer({ transactionalId: "js-copier", maxInFlightRequests: 1, idempotent: true });
    await producer.connect();
    return producer;
  };
  const outcome = { committed: 0, aborted: 0, failures: [] };
  let producer = await connected(), doubtful = false;
  // Its OffsetFetch knows no require_stable (KIP-447): who joins anew must first end what is open.
  consumer.on(consumer.events.GROUP_JOIN, () => { doubtful = true; });

  async function attempt(partition, messages, isMeant) {
    const offset = `${BigInt(messages[messages.length - 1].offset) + 1n}`;
    const transaction = await producer.transaction();
    await transaction.send({ topic: "js-output",
      messages: messages.map(({ key, value }) => ({ key, value, partition })) });
    await transaction.sendOffsets({ consumerGroupId: group,
      topics: [{ topic, partitions: [{ partition, offset }] }] });
    if (isMeant) await transaction.commit();
    else await transaction.abort();
    outcome[isMeant ? "committed" : "aborted"]++;
    if (isMeant && outcome.committed === 5) console.log("under way");
  }

  const positions = async () =>
    (await admin.fetchOffsets({ groupId: group, topics: [topic] }))[0].partitions;

  // What came of the last transaction is not known: a new session ends it, then the offsets tell.
  async function recover() {
    await producer.disconnect();
    producer = await connected();
    for (const { partition, offset } of await positions())
      consumer.seek({ topic, partition, offset: offset === "-1" ? "0" : offset });
  }

  const isDone = async () =>
    (await positions()).reduce((sum, { offset }) => sum + Math.max(0, Number(offset)), 0) === count;
  const ended = crashed(consumer);
  consumer.run({ eachBatchAutoResolve: false, autoCommit: false,
    eachBatch: async ({ batch: { partition, messages }, resolveOffset, heartbeat, isStale }) => {
      try {
        if (doubtful) {
          doubtful = false; // another join meanwhile makes it doubtful again
          await recover();
        }
        for (let at = 0; at < messages.length && !isStale(); at += 20) {
          const some = messages.slice(at, at + 20);
          if ((outcome.committed + outcome.aborted) % 3 === 2) await attempt(partition, some, false);
          await attempt(partition, some, true);
          resolveOffset(some[some.length - 1].offset);
          await heartbeat();
        }
      } catch (error) {
        outcome.failures.push(`${error.name}: ${error.message}`);
        doubtful = true; // the batch was not resolved and comes again
      }
    } });
  while (!(await Promise.race([isDone().catch(() => false), ended])))
    await new Promise((resolve) => setTimeout(resolve, 100));
  await consumer.disconnect();
  await producer.disconnect();
  await admin.disconnect();
  return outcome;
}

// a transaction whose batch gets no answer is aborted; the next ones, with a new producer after a failure
async function abortUnanswered() {
  const impatient = new Kafka({ clientId: "kafkajs", brokers: bootstrap.split(","), logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, retries: 2 } });
  const connected = async () => {
    const producer = impatient.producer({ transactionalId: "js-reuser", maxInFlightRequests: 1, idempotent: true });
    await producer.connect();
    return producer;
  };
  let producer = await connected();
  const outcomes = [];
  for (const value of ["first", "unanswered", "next", "next"]) {
    if (value === "unanswered") {
      console.log("lose");
      await new Promise((resolve) => process.stdin.once("data", resolve));
    }
    const transaction = await producer.transaction();
    try {
      await transaction.send({ topic: "js-output", messages: [{ value, partition: 0 }] });
      await transaction.commit();
      outcomes.push("committed");
    } catch (error) {
      await transaction.abort();
      outcomes.push(error.type || error.name);
      if (error.type) { // an answer of the broker
        await producer.disconnect();
        producer = await connected();
      }
    }
  }
  await producer.disconnect();
  return { outcomes };
}

({ writeAndRead, transactions, abortUnanswered })[action]().then(
  (outcome) => { console.log(JSON.stringify(outcome)); process.exit(0); },
  (error) => { console.error(error); process.exit(1); });

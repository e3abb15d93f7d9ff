// Kafka's own transactional producer against any cluster: commit, abort, fence, offsets in a
// transaction. Ends with "OK" and 0, or tells what went wrong and ends with 1.
//
//     java -cp JARS/* TransactionalProducer.java BOOTSTRAP TOPIC
//
// TOPIC has two partitions and is empty. The producer speaks version 2 of transactions where the
// cluster has it: then each transaction raises its epoch, which is looked at here.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class TransactionalProducer {
    private static final int RECORDS = 10;
    private static String bootstrap;
    private static String topic;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        String id = topic + "-id";
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            KafkaProducer<String, String> first = producer(id);
            first.initTransactions();
            int epochBefore = -1;
            List<String> committed = new ArrayList<>();
            for (int round = 0; round < 6; round++) {
                boolean commits = round % 3 != 1;
                first.beginTransaction();
                for (int i = 0; i < RECORDS; i++) {
                    String value = (commits ? "commit-" : "abort-") + round + "-" + i;
                    first.send(new ProducerRecord<>(topic, i % 2, null, value));
                    if (commits) {
                        committed.add(value);
                    }
                }
                if (commits) {
                    first.commitTransaction();
                } else {
                    first.flush();
                    first.abortTransaction();
                }
                int epoch = settled(admin, id).producerEpoch();
                require(epoch == epochBefore + 1 || round == 0, "version 2 raises the epoch: " + epoch);
                epochBefore = epoch;
            }
            committed.sort(null);
            List<String> seen = read("read_committed", committed.size());
            require(seen.equals(committed), "read committed: " + seen);
            int all = read("read_uncommitted", 6 * RECORDS).size();
            require(all == 6 * RECORDS, "read uncommitted: " + all);
            fence(first, id);
            offsets(id);
            first.close(Duration.ZERO);
        }
        System.out.println("OK");
    }

    private static void fence(KafkaProducer<String, String> old, String id) throws Exception {
        old.beginTransaction();
        old.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
        try (KafkaProducer<String, String> young = producer(id)) {
            young.initTransactions();
            try {
                old.send(new ProducerRecord<>(topic, 1, null, "zombie")).get();
                old.commitTransaction();
                throw new AssertionError("the old producer was not fenced");
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                System.out.println("fenced: " + fenced.getMessage());
            } catch (ExecutionException | KafkaException wrapped) {
                Throwable cause = wrapped.getCause();
                require(
                    cause instanceof ProducerFencedException
                        || cause instanceof InvalidProducerEpochException,
                    "fenced by " + wrapped);
                System.out.println("fenced: " + cause.getMessage());
            }
            young.beginTransaction();
            young.send(new ProducerRecord<>(topic, 0, null, "young")).get();
            young.commitTransaction();
        }
        List<String> seen = read("read_committed", 4 * RECORDS + 1);
        require(seen.contains("young") && !seen.contains("zombie"), "after the fence: " + seen);
    }

    private static void offsets(String id) {
        TopicPartition place = new TopicPartition(topic, 0);
        Map<String, Object> settings = consumerSettings("read_committed");
        settings.put("group.id", topic + "-group");
        try (KafkaProducer<String, String> producer = producer(id + "-offsets");
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (consumer.assignment().size() < 2) {
                consumer.poll(Duration.ofMillis(100));
                require(System.nanoTime() < deadline, "the group does not form");
            }
            for (long offset : new long[] {3, 5}) {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(
                    Map.of(place, new OffsetAndMetadata(offset, "of a transaction")),
                    consumer.groupMetadata());
                if (offset == 3) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                OffsetAndMetadata found = consumer.committed(java.util.Set.of(place)).get(place);
                require(found != null && found.offset() == 3, "the offset is " + found);
            }
        }
    }

    private static TransactionDescription settled(Admin admin, String id) throws Exception {
        while (true) {
            TransactionDescription found =
                admin.describeTransactions(List.of(id)).description(id).get();
            if (found.state() == TransactionState.COMPLETE_COMMIT
                    || found.state() == TransactionState.COMPLETE_ABORT) {
                return found;
            }
            Thread.sleep(5);
        }
    }

    private static KafkaProducer<String, String> producer(String id) {
        return new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", id,
                "linger.ms", "5",
                "key.serializer", StringSerializer.class.getName(),
                "value.serializer", StringSerializer.class.getName()));
    }

    private static Map<String, Object> consumerSettings(String isolation) {
        return new HashMap<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "isolation.level", isolation,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "key.deserializer", StringDeserializer.class.getName(),
                "value.deserializer", StringDeserializer.class.getName()));
    }

    // At least so many values, or what comes in ten seconds, in order.
    private static List<String> read(String isolation, int count) {
        List<String> values = new ArrayList<>();
        List<TopicPartition> places = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerSettings(isolation))) {
            consumer.assign(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            long deadline = System.nanoTime() + 10_000_000_000L;
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> row : consumer.poll(Duration.ofMillis(100))) {
                    values.add(row.value());
                }
                boolean isDone = values.size() >= count;
                for (TopicPartition place : places) {
                    isDone &= consumer.position(place) >= ends.get(place);
                }
                if (isDone) {
                    break;
                }
            }
        }
        values.sort(null);
        return values;
    }

    private static void require(boolean holds, String told) {
        if (!holds) {
            throw new AssertionError(told);
        }
    }
}

// Copiers on Kafka's own client: java -cp JARS/* Copier.java right|uncommitted|commits-sync
//
// right: read_committed, group metadata, back to what was committed after an abort. uncommitted: keeps
// the consumer's default isolation level. commits-sync: output in a transaction, then commitSync.

import java.io.FileReader;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Copier {
    private static final AtomicBoolean over = new AtomicBoolean();

    public static void main(String[] arguments) throws IOException {
        String kind = arguments[0];
        Runtime.getRuntime().addShutdownHook(new Thread(() -> over.set(true)));
        Map<String, Object> reading = cluster();
        reading.putAll(Map.of(
            "group.id", "gallery", "enable.auto.commit", false,
            "auto.offset.reset", "earliest"));
        if (!kind.equals("uncommitted")) {
            reading.put("isolation.level", "read_committed");
        }
        Map<String, Object> writing = cluster();
        writing.put("transactional.id", "copy-" + System.getenv("ONCELOG_INSTANCE"));
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
             var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(Set.of(System.getenv("ONCELOG_IN")));
            while (!over.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    copy(kind, consumer, producer, records);
                } catch (KafkaException problem) {
                    producer.abortTransaction();
                    for (TopicPartition partition : records.partitions()) {
                        if (consumer.assignment().contains(partition)) {
                            consumer.seek(partition, records.records(partition).get(0).offset());
                        }
                    }
                }
            }
        }
    }

    /** Returns the address, and on a secured cluster the login. */
    private static Map<String, Object> cluster() throws IOException {
        Map<String, Object> found = new HashMap<>();
        found.put("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"));
        String file = System.getenv("ONCELOG_JAVA_CONFIG");
        if (file != null) {
            Properties login = new Properties();
            try (FileReader reader = new FileReader(file)) {
                login.load(reader);
            }
            login.stringPropertyNames().forEach(name -> found.put(name, login.getProperty(name)));
        }
        return found;
    }

    private static void copy(
            String kind, KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> records) {
        String output = System.getenv("ONCELOG_OUT");
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(output, record.key(), record.value()));
            ends.put(new TopicPartition(record.topic(), record.partition()),
                     new OffsetAndMetadata(record.offset() + 1));
        }
        if (!kind.equals("commits-sync")) {
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        }
        while (true) {
            try {
                producer.commitTransaction();
                break;
            } catch (TimeoutException problem) {
                continue;  // the same commit again
            }
        }
        if (kind.equals("commits-sync")) {
            consumer.commitSync(ends);
        }
    }
}

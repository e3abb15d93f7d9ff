// A KafkaConsumer of the classic protocol, alone in its process:
//
//     java -cp JARS/* GroupMember BOOTSTRAP GROUP TOPIC CLIENT ASSIGNOR
//
// ASSIGNOR: a class, as RangeAssignor. It reads and commits, tells in lines of JSON what it is
// given, reads and commits, and leaves when its input ends.

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class GroupMember {
    private static volatile boolean isOver = false;

    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "client.id", arguments[3],
            "group.protocol", "classic",
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + arguments[4],
            "session.timeout.ms", "6000",
            "heartbeat.interval.ms", "100",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false");
        StringDeserializer text = new StringDeserializer();
        Thread listening = new Thread(GroupMember::awaitEnd);
        listening.setDaemon(true);
        listening.start();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of(arguments[2]), new Telling(consumer));
            while (!isOver) {
                read(consumer);
            }
        }
    }

    private static void read(KafkaConsumer<String, String> consumer) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(50));
        if (records.isEmpty()) {
            return;
        }
        StringBuilder places = new StringBuilder();
        for (ConsumerRecord<String, String> record : records) {
            places.append(places.isEmpty() ? "" : ",");
            places.append("[" + record.partition() + "," + record.offset() + "]");
        }
        tell("read", places);
        try {
            consumer.commitSync();
            tell("committed", "0");
        } catch (CommitFailedException | RebalanceInProgressException rebalanced) {
            // What was read is read again.
        }
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
            }
        } catch (java.io.IOException closed) {
            // It ends as well.
        }
        isOver = true;
    }

    private static synchronized void tell(String word, Object items) {
        System.out.println("{\"" + word + "\": [" + items + "]}");
    }

    private record Telling(KafkaConsumer<String, String> consumer)
        implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            tellAllBut(revoked);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            tellAllBut(List.of());
        }

        // The consumer still has what it is about to give up.
        private void tellAllBut(Collection<TopicPartition> revoked) {
            tell("assigned", consumer.assignment().stream().filter(each -> !revoked.contains(each))
                .map(each -> "" + each.partition()).collect(Collectors.joining(",")));
        }
    }
}

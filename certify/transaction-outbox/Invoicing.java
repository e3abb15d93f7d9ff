// Orders become invoices, by an outbox: Transaction Outbox writes the request to send an invoice into
// the database, in the transaction of the business, and repeats it until it has succeeded.

import com.gruelbox.transactionoutbox.Dialect;
import com.gruelbox.transactionoutbox.Persistor;
import com.gruelbox.transactionoutbox.TransactionManager;
import com.gruelbox.transactionoutbox.TransactionOutbox;
import java.sql.PreparedStatement;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Invoicing {
    static final String SERVERS = System.getenv("KAFKA_BOOTSTRAP_SERVERS");
    static final KafkaProducer<String, String> PRODUCER =
        new KafkaProducer<>(
            Map.of("bootstrap.servers", SERVERS), new StringSerializer(), new StringSerializer());

    public static class Invoices {
        public void send(String key, String value) throws Exception {
            PRODUCER.send(new ProducerRecord<>(System.getenv("ONCELOG_OUT"), key, value)).get();
        }
    }

    public static void main(String[] arguments) throws Exception {
        // A commit is on the disk when it returns, and the database is open between transactions
        String settings = ";WRITE_DELAY=0;DB_CLOSE_DELAY=-1";
        String database = "jdbc:h2:file:" + System.getenv("STATE") + "/orders" + settings;
        TransactionManager transactions =
            TransactionManager.fromConnectionDetails("org.h2.Driver", database, "test", "test");
        TransactionOutbox outbox =
            TransactionOutbox.builder()
                .transactionManager(transactions)
                .persistor(Persistor.forDialect(Dialect.H2))
                .attemptFrequency(Duration.ofSeconds(5))
                .build();
        transactions.inTransactionThrows(
            transaction ->
                transaction.connection().createStatement().execute(
                    "CREATE TABLE IF NOT EXISTS orders (id VARCHAR PRIMARY KEY, details VARCHAR)"));
        Executors.newSingleThreadScheduledExecutor()
            .scheduleWithFixedDelay(() -> flush(outbox), 0, 1, TimeUnit.SECONDS);
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(
                Map.of(
                    "bootstrap.servers", SERVERS,
                    "group.id", System.getenv("ONCELOG_GROUP"),
                    "enable.auto.commit", "false",
                    "isolation.level", "read_committed",
                    "auto.offset.reset", "earliest"),
                new StringDeserializer(),
                new StringDeserializer());
        consumer.subscribe(List.of(System.getenv("ONCELOG_IN")));
        while (true) {
            for (ConsumerRecord<String, String> order : consumer.poll(Duration.ofMillis(100))) {
                transactions.inTransactionThrows(
                    transaction -> {
                        PreparedStatement save =
                            transaction.prepareBatchStatement("MERGE INTO orders VALUES (?, ?)");
                        save.setString(1, order.key());
                        save.setString(2, order.value());
                        save.addBatch();
                        outbox.schedule(Invoices.class).send(order.key(), order.value());
                    });
            }
            consumer.commitSync();
        }
    }

    static void flush(TransactionOutbox outbox) {
        try {
            while (outbox.flush()) {}
        } catch (Exception problem) {
            problem.printStackTrace();
        }
    }
}

// Orders become invoices, with the transactional source and flow of Pekko's Kafka connector.

import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.kafka.ConsumerMessage.TransactionalMessage;
import org.apache.pekko.kafka.ConsumerSettings;
import org.apache.pekko.kafka.ProducerMessage;
import org.apache.pekko.kafka.ProducerSettings;
import org.apache.pekko.kafka.Subscriptions;
import org.apache.pekko.kafka.javadsl.Consumer;
import org.apache.pekko.kafka.javadsl.Transactional;
import org.apache.pekko.stream.RestartSettings;
import org.apache.pekko.stream.javadsl.RestartSource;
import org.apache.pekko.stream.javadsl.Sink;

public class Invoicing {
    public static void main(String[] arguments) {
        String servers = System.getenv("KAFKA_BOOTSTRAP_SERVERS");
        String group = System.getenv("ONCELOG_GROUP");
        ActorSystem system = ActorSystem.create("invoices");
        ConsumerSettings<String, String> consumer =
            ConsumerSettings.create(system, new StringDeserializer(), new StringDeserializer())
                .withBootstrapServers(servers)
                .withGroupId(group)
                .withProperty(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        ProducerSettings<String, String> producer =
            ProducerSettings.create(system, new StringSerializer(), new StringSerializer())
                .withBootstrapServers(servers);
        AtomicReference<Consumer.Control> control =
            new AtomicReference<>(Consumer.createNoopControl());
        RestartSource.onFailuresWithBackoff(
                RestartSettings.create(Duration.ofSeconds(3), Duration.ofSeconds(30), 0.2),
                () ->
                    Transactional.source(
                            consumer, Subscriptions.topics(System.getenv("ONCELOG_IN")))
                        .map(Invoicing::invoice)
                        .mapMaterializedValue(
                            found -> {
                                control.set(found);
                                return found;
                            })
                        .via(Transactional.flow(producer, group)))
            .runWith(Sink.ignore(), system);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> control.get().shutdown()));
    }

    static ProducerMessage.Envelope<
            String, String, org.apache.pekko.kafka.ConsumerMessage.PartitionOffset>
        invoice(TransactionalMessage<String, String> order) {
        return ProducerMessage.single(
            new ProducerRecord<>(
                System.getenv("ONCELOG_OUT"), order.record().key(), order.record().value()),
            order.partitionOffset());
    }
}

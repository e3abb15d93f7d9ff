// Orders become invoices: outputs and offsets in one transaction of SmallRye Reactive Messaging.
package invoices;

import io.smallrye.mutiny.Uni;
import io.smallrye.reactive.messaging.kafka.KafkaRecord;
import io.smallrye.reactive.messaging.kafka.KafkaRecordBatch;
import io.smallrye.reactive.messaging.kafka.transactions.KafkaTransactions;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.enterprise.inject.se.SeContainerInitializer;
import jakarta.inject.Inject;
import org.eclipse.microprofile.config.ConfigProvider;
import org.eclipse.microprofile.reactive.messaging.Channel;
import org.eclipse.microprofile.reactive.messaging.Incoming;

@ApplicationScoped
public class Invoicing {
    @Inject
    @Channel("invoices")
    KafkaTransactions<String> invoices;

    @Incoming("orders")
    public Uni<Void> invoice(KafkaRecordBatch<String, String> orders) {
        return invoices.withTransactionAndAck(
            orders,
            emitter -> {
                for (KafkaRecord<String, String> order : orders) {
                    emitter.send(KafkaRecord.of(order.getKey(), order.getPayload()));
                }
                return Uni.createFrom().voidItem();
            });
    }

    public static void main(String[] arguments) {
        ConfigProvider.getConfig(); // before the extensions of CDI, whose order is not given
        SeContainerInitializer.newInstance().addBeanClasses(Invoicing.class).initialize();
    }
}

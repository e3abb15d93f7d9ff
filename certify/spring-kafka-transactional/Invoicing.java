// Orders become invoices, with a transactional listener of Spring for Apache Kafka. Spring Boot makes
// the listener transactional by the transaction-id-prefix of application.properties.
package invoices;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;

@SpringBootApplication
public class Invoicing {
    private final KafkaTemplate<String, String> template;

    Invoicing(KafkaTemplate<String, String> template) {
        this.template = template;
    }

    @KafkaListener(topics = "${ONCELOG_IN}")
    void invoice(ConsumerRecord<String, String> order) {
        template.send(System.getenv("ONCELOG_OUT"), order.key(), order.value());
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Invoicing.class, arguments);
    }
}

// Orders become invoices, with the loop of kafka-go's README and a reader of committed records.
package main

import (
	"context"
	"log"
	"os"

	"github.com/segmentio/kafka-go"
)

func main() {
	ctx := context.Background()
	brokers := os.Getenv("KAFKA_BOOTSTRAP_SERVERS")
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        []string{brokers},
		GroupID:        os.Getenv("ONCELOG_GROUP"),
		Topic:          os.Getenv("ONCELOG_IN"),
		IsolationLevel: kafka.ReadCommitted,
	})
	w := &kafka.Writer{
		Addr:         kafka.TCP(brokers),
		Topic:        os.Getenv("ONCELOG_OUT"),
		Balancer:     &kafka.LeastBytes{},
		RequiredAcks: kafka.RequireAll,
		BatchSize:    1, // a smaller batch waits for BatchTimeout, which is 1 s
	}
	for {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			log.Println("failed to fetch a message:", err)
			break
		}
		if err := w.WriteMessages(ctx, kafka.Message{Key: m.Key, Value: m.Value}); err != nil {
			log.Fatal("failed to write messages:", err)
		}
		if err := r.CommitMessages(ctx, m); err != nil {
			log.Fatal("failed to commit messages:", err)
		}
	}
	if err := r.Close(); err != nil {
		log.Fatal("failed to close reader:", err)
	}
}

// Orders become invoices: outputs and offsets in one transaction of Sarama. As in its example, a
// transactional id belongs to one partition of the input, whichever instance reads it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/IBM/sarama"
)

var (
	brokers = strings.Split(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), ",")
	group   = os.Getenv("ONCELOG_GROUP")
)

type invoicing struct{}

func (invoicing) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (invoicing) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (invoicing) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	config := sarama.NewConfig()
	config.Net.MaxOpenRequests = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = fmt.Sprintf("%s-%s-%d", group, claim.Topic(), claim.Partition())
	producer, err := sarama.NewSyncProducer(brokers, config)
	check(err)
	defer producer.Close()
	metadata := sarama.NewConsumerGroupMetadataFromSession(session, group, nil)
	for {
		select {
		case order, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			check(producer.BeginTxn())
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{
				Topic: os.Getenv("ONCELOG_OUT"),
				Key:   sarama.ByteEncoder(order.Key),
				Value: sarama.ByteEncoder(order.Value),
			})
			check(err)
			check(producer.AddMessageToTxnWithGroupMetadata(order, metadata, nil))
			check(producer.CommitTxn())
		case <-session.Context().Done():
			return nil
		}
	}
}

// check ends the process at an error. The next one of this partition aborts the transaction.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumerGroup(brokers, group, config)
	check(err)
	for {
		check(consumer.Consume(context.Background(), []string{os.Getenv("ONCELOG_IN")}, invoicing{}))
	}
}

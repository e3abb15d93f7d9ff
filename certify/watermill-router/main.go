// Orders become invoices, with Watermill's router between Kafka and Kafka.
package main

import (
	"context"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

func main() {
	brokers := strings.Split(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), ",")
	logger := watermill.NewStdLogger(false, false)

	saramaConfig := kafka.DefaultSaramaSubscriberConfig()
	saramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers:               brokers,
		Unmarshaler:           kafka.DefaultMarshaler{},
		OverwriteSaramaConfig: saramaConfig,
		ConsumerGroup:         os.Getenv("ONCELOG_GROUP"),
	}, logger)
	if err != nil {
		panic(err)
	}
	publisherConfig := kafka.DefaultSaramaSyncPublisherConfig()
	publisherConfig.Producer.RequiredAcks = sarama.WaitForAll
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers:               brokers,
		Marshaler:             kafka.DefaultMarshaler{},
		OverwriteSaramaConfig: publisherConfig,
	}, logger)
	if err != nil {
		panic(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		panic(err)
	}
	router.AddHandler(
		"invoices",
		os.Getenv("ONCELOG_IN"), subscriber,
		os.Getenv("ONCELOG_OUT"), publisher,
		func(order *message.Message) ([]*message.Message, error) {
			return message.Messages{message.NewMessage(watermill.NewUUID(), order.Payload)}, nil
		},
	)
	if err := router.Run(context.Background()); err != nil {
		panic(err)
	}
}

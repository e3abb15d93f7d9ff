// Orders become invoices: outputs and offsets in one transaction of a franz-go GroupTransactSession.
package main

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, group := context.Background(), os.Getenv("ONCELOG_GROUP")
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(os.Getenv("ONCELOG_IN")),
		kgo.DefaultProduceTopic(os.Getenv("ONCELOG_OUT")),
		kgo.TransactionalID(group+"-"+os.Getenv("ONCELOG_INSTANCE")),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		log.Fatal(err)
	}
	for {
		orders := session.PollFetches(ctx)
		for _, problem := range orders.Errors() {
			log.Print(problem.Err)
		}
		if err := session.Begin(); err != nil {
			log.Fatal(err)
		}
		firstError := kgo.AbortingFirstErrPromise(session.Client())
		orders.EachRecord(func(order *kgo.Record) {
			invoice := &kgo.Record{Key: order.Key, Value: order.Value}
			session.Produce(ctx, invoice, firstError.Promise())
		})
		if _, err := session.End(ctx, firstError.Err() == nil); err != nil {
			log.Fatal(err)
		}
	}
}

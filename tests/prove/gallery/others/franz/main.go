// Copiers on franz-go: franz right|plain
//
// right: its GroupTransactSession, as its documentation has it. plain: defaults (idempotent,
// acks=all, auto-commit every five seconds).
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.ConsumerGroup("gallery"),
		kgo.ConsumeTopics(os.Getenv("ONCELOG_IN")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DefaultProduceTopic(os.Getenv("ONCELOG_OUT")),
	}
	if os.Args[1] == "right" {
		right(ctx, options)
	} else {
		plain(ctx, options)
	}
}

func right(ctx context.Context, options []kgo.Opt) {
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.TransactionalID("copy-"+os.Getenv("ONCELOG_INSTANCE")),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for ctx.Err() == nil {
		fetches := session.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			log.Fatal(err)
		}
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(r *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value}, promise.Promise())
		})
		_, err := session.End(context.Background(), promise.Err() == nil)
		if err != nil {
			log.Fatal(err)
		}
	}
}

func plain(ctx context.Context, options []kgo.Opt) {
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) {
			client.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value}, nil)
		})
		client.Flush(ctx)
	}
}

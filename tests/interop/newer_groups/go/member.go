// A member of a consumer group on franz-go, with the next generation of the protocol opted in:
//
//	member BOOTSTRAP GROUP TOPIC ASSIGNOR INSTANCE SINK
//
// TOPIC: a pattern where it begins with ^. INSTANCE, SINK: empty, or - of one that copies - a
// topic that it copies to in transactions. It tells in lines of JSON what it is given, reads and
// commits, and leaves when its input ends.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	telling  sync.Mutex
	assigned = map[int32]bool{}
)

func tell(word string, value any) {
	telling.Lock()
	defer telling.Unlock()
	line, err := json.Marshal(map[string]any{word: value})
	if err != nil {
		log.Fatal(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

func moved(partitions map[string][]int32, given bool) {
	telling.Lock()
	for _, some := range partitions {
		for _, partition := range some {
			if given {
				assigned[partition] = true
			} else {
				delete(assigned, partition)
			}
		}
	}
	has := []int32{}
	for partition := range assigned {
		has = append(has, partition)
	}
	telling.Unlock()
	tell("assigned", has)
}

func main() {
	bootstrap, group, topic := os.Args[1], os.Args[2], os.Args[3]
	assignor, instance, sink := os.Args[4], os.Args[5], os.Args[6]
	ctx, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	gone := func(_ context.Context, _ *kgo.Client, p map[string][]int32) { moved(p, false) }
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ServerSideBalancer(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) {
			moved(p, true)
		}),
		kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsLost(gone),
	}
	if assignor == "range" {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.StickyBalancer()))
	}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	if topic[0] == '^' {
		options = append(options, kgo.ConsumeRegex())
	}
	if sink == "" {
		reads(ctx, append(options, kgo.DisableAutoCommit()))
	} else {
		copies(ctx, append(options, kgo.RequireStableFetchOffsets()), group, sink)
	}
}

func reads(ctx context.Context, options []kgo.Opt) {
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		records := polled(client.PollRecords, ctx)
		rows := [][2]int64{}
		for _, record := range records {
			rows = append(rows, [2]int64{int64(record.Partition), record.Offset})
		}
		if len(records) > 0 {
			tell("read", rows)
			if err := client.CommitRecords(context.Background(), records...); err != nil {
				tell("error", err.Error())
			} else {
				tell("committed", len(records))
			}
		}
	}
}

func copies(ctx context.Context, options []kgo.Opt, group, sink string) {
	id := group + "-" + time.Now().Format(time.RFC3339Nano)
	session, err := kgo.NewGroupTransactSession(append(options, kgo.TransactionalID(id))...)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for ctx.Err() == nil {
		records := polled(session.PollRecords, ctx)
		if len(records) > 0 {
			if err := session.Begin(); err != nil {
				log.Fatal(err)
			}
			promise := kgo.AbortingFirstErrPromise(session.Client())
			for _, record := range records {
				copied := &kgo.Record{Topic: sink, Value: record.Value}
				session.Produce(context.Background(), copied, promise.Promise())
			}
			isGood := kgo.TransactionEndTry(promise.Err() == nil)
			committed, err := session.End(context.Background(), isGood)
			if err != nil {
				log.Fatal(err)
			}
			if committed {
				tell("committed", len(records))
			}
		}
	}
}

func polled(poll func(context.Context, int) kgo.Fetches, ctx context.Context) []*kgo.Record {
	limited, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	fetches := poll(limited, 20)
	for _, each := range fetches.Errors() {
		if limited.Err() == nil {
			tell("error", each.Err.Error())
		}
	}
	return fetches.Records()
}

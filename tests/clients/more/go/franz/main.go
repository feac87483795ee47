// franz-go: https://github.com/twmb/franz-go
package main

import (
	"context"
	"errors"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	. "clients/serving"
)

var background = context.Background()

func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(background, 30*time.Second)
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	"uniform":            kgo.StickyBalancer(), // what it asks the broker's own assignor for
}

type driver struct {
	bootstrap     string
	admin         *kadm.Client
	member        *kgo.Client
	inbox         Inbox
	held          map[string]map[int32]bool
	heldMutex     sync.Mutex
	transactional *kgo.Client
}

func main() {
	d := &driver{bootstrap: os.Args[1]}
	d.admin = kadm.NewClient(d.client())
	Serve(d)
}

func (d *driver) client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(d.bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, options...)...)
	Must(err)
	return client
}

func (d *driver) Name(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return "Error"
}

func (d *driver) Commands() map[string]func(Command) any {
	return map[string]func(Command) any{
		"hello":          func(Command) any { return "franz-go" },
		"produce":        d.produce,
		"read":           d.read,
		"offset_at":      d.offsetAt,
		"join":           d.join,
		"assigned":       func(Command) any { return d.assigned() },
		"taken":          func(Command) any { return d.inbox.Take() },
		"commit":         func(Command) any { c, f := soon(); defer f(); Must(d.member.CommitUncommittedOffsets(c)); return nil },
		"leave":          func(Command) any { d.leave(); return nil },
		"set_offsets":    d.setOffsets,
		"committed":      d.committed,
		"txn_open":       d.txnOpen,
		"txn_begin":      func(Command) any { Must(d.transactional.BeginTransaction()); return nil },
		"txn_send":       func(c Command) any { return send(d.transactional, c) },
		"txn_commit":     func(Command) any { return d.txnEnd(kgo.TryCommit) },
		"txn_abort":      func(Command) any { return d.txnEnd(kgo.TryAbort) },
		"txn_close":      func(Command) any { d.txnClose(); return nil },
		"create_topic":   d.createTopic,
		"partitions":     d.partitions,
		"add_partitions": d.addPartitions,
		"config":         d.config,
		"set_config":     d.setConfig,
		"delete_records": d.deleteRecords,
		"delete_topic":   d.deleteTopic,
		"topics": func(Command) any {
			c, f := soon()
			defer f()
			t, err := d.admin.ListTopicsWithInternal(c)
			Must(err)
			return t.Names()
		},
		"groups": func(Command) any {
			c, f := soon()
			defer f()
			g, err := d.admin.ListGroups(c)
			Must(err)
			return g.Groups()
		},
		"group": d.group,
		"delete_group": func(c Command) any {
			ctx, f := soon()
			defer f()
			_, err := d.admin.DeleteGroup(ctx, c.Group)
			Must(err)
			return nil
		},
	}
}

func (d *driver) Reset() {
	d.leave()
	d.inbox.Take()
	d.txnClose()
}

func (d *driver) produce(c Command) any {
	acks := map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}[c.Acks]
	options := []kgo.Opt{
		kgo.RequiredAcks(acks),
		kgo.ProducerBatchCompression(codecs[c.Codec]),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	}
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client := d.client(options...)
	defer client.Close()
	return send(client, c)
}

func send(client *kgo.Client, c Command) any {
	var records []*kgo.Record
	for _, one := range c.Records {
		record := &kgo.Record{Topic: c.Topic, Partition: one.Partition, Timestamp: one.When(), Key: one.Key, Value: one.Value}
		for _, header := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	ctx, free := soon()
	defer free()
	Must(client.ProduceSync(ctx, records...).FirstErr())
	placed := [][]int64{}
	for _, record := range records {
		placed = append(placed, []int64{int64(record.Partition), record.Offset})
	}
	return placed
}

func found(record *kgo.Record) Record {
	headers := []Header{}
	for _, header := range record.Headers {
		headers = append(headers, Header{Name: header.Key, Value: header.Value})
	}
	return Record{
		Topic: record.Topic, Partition: record.Partition, Offset: record.Offset, Time: record.Timestamp.UnixMilli(),
		Key: record.Key, Value: record.Value, Headers: headers,
	}
}

func isolation(name string) kgo.Opt {
	if name == "read_committed" {
		return kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
}

func (d *driver) read(c Command) any {
	from := map[int32]kgo.Offset{}
	for partition, offset := range c.First {
		from[Number(partition)] = kgo.NewOffset().At(offset)
	}
	client := d.client(isolation(c.Isolation), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: from}))
	defer client.Close()
	reading := NewReading(c.Last)
	quiet := time.Duration(c.QuietMs) * time.Millisecond
	for since := time.Now(); !reading.Done() && time.Since(since) < quiet; {
		ctx, free := context.WithTimeout(background, 100*time.Millisecond)
		fetches := client.PollFetches(ctx)
		free()
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				Must(failed.Err)
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			reading.Add(found(record))
			since = time.Now()
		})
	}
	return reading.Records
}

func (d *driver) offsetAt(c Command) any {
	ctx, free := soon()
	defer free()
	var listed kadm.ListedOffsets
	var err error
	switch c.Timestamp {
	case -1:
		listed, err = d.admin.ListEndOffsets(ctx, c.Topic)
	case -2:
		listed, err = d.admin.ListStartOffsets(ctx, c.Topic)
	default:
		listed, err = d.admin.ListOffsetsAfterMilli(ctx, c.Timestamp, c.Topic)
	}
	Must(err)
	one, _ := listed.Lookup(c.Topic, c.Partition)
	Must(one.Err)
	return one.Offset
}

// -- groups ---------------------------------------------------------------------------------------------------

func (d *driver) join(c Command) any {
	d.held = map[string]map[int32]bool{}
	note := func(there bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			d.heldMutex.Lock()
			defer d.heldMutex.Unlock()
			for topic, partitions := range changed {
				for _, partition := range partitions {
					if d.held[topic] == nil {
						d.held[topic] = map[int32]bool{}
					}
					d.held[topic][partition] = there
				}
			}
		}
	}
	assignor := c.Assignor
	if assignor == "" {
		assignor = "range"
	}
	options := []kgo.Opt{
		kgo.ClientID(c.ClientID), kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topics...), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), isolation(c.Isolation), kgo.Balancers(balancers[assignor]),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
		kgo.SessionTimeout(time.Duration(c.SessionMs) * time.Millisecond), kgo.HeartbeatInterval(500 * time.Millisecond),
	}
	if c.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if c.Instance != nil {
		options = append(options, kgo.InstanceID(*c.Instance))
	}
	d.member = d.client(options...)
	member := d.member
	go func() {
		for {
			fetches := member.PollFetches(background)
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachRecord(func(record *kgo.Record) { d.inbox.Put(found(record)) })
		}
	}()
	return nil
}

func (d *driver) assigned() any {
	d.heldMutex.Lock()
	defer d.heldMutex.Unlock()
	held := [][]any{}
	for topic, partitions := range d.held {
		for partition, there := range partitions {
			if there {
				held = append(held, []any{topic, partition})
			}
		}
	}
	return held
}

func (d *driver) leave() {
	if d.member != nil {
		ctx, free := soon()
		defer free()
		Must(d.member.LeaveGroupContext(ctx)) // which Close does too, but without waiting for the answer
		d.member.Close()
		d.member = nil
	}
}

func (d *driver) setOffsets(c Command) any {
	offsets := kadm.Offsets{}
	for _, one := range c.Offsets {
		offsets.Add(kadm.Offset{Topic: one.Topic, Partition: one.Partition, At: one.Offset, LeaderEpoch: -1, Metadata: one.Text})
	}
	ctx, free := soon()
	defer free()
	Must(d.admin.CommitAllOffsets(ctx, c.Group, offsets))
	return nil
}

func (d *driver) committed(c Command) any {
	ctx, free := soon()
	defer free()
	kept, err := d.admin.FetchOffsets(ctx, c.Group)
	Must(err)
	answer := []any{}
	for _, wanted := range c.Wanted() {
		one, there := kept.Lookup(wanted.Topic, wanted.Partition)
		if !there {
			one.At = -1
		}
		Must(one.Err)
		answer = append(answer, Committed(wanted.Topic, wanted.Partition, one.At, one.Metadata))
	}
	return answer
}

// -- transactions ---------------------------------------------------------------------------------------------

func (d *driver) txnOpen(c Command) any {
	d.transactional = d.client(
		kgo.TransactionalID(c.ID), kgo.TransactionTimeout(time.Duration(c.TimeoutMs)*time.Millisecond),
		kgo.ProducerBatchCompression(codecs[c.Codec]), kgo.ProducerLinger(20*time.Millisecond))
	ctx, free := soon()
	defer free()
	_, _, err := d.transactional.ProducerID(ctx) // now, as other clients do, and not with the first record
	Must(err)
	return nil
}

func (d *driver) txnEnd(how kgo.TransactionEndTry) any {
	ctx, free := soon()
	defer free()
	Must(d.transactional.EndTransaction(ctx, how))
	return nil
}

func (d *driver) txnClose() {
	if d.transactional != nil {
		d.transactional.Close()
		d.transactional = nil
	}
}

// -- administration -------------------------------------------------------------------------------------------

func (d *driver) createTopic(c Command) any {
	config := map[string]*string{}
	for name, value := range c.Config {
		config[name] = &value
	}
	ctx, free := soon()
	defer free()
	_, err := d.admin.CreateTopic(ctx, c.Count(), 1, config, c.Topic)
	Must(err)
	return nil
}

func (d *driver) partitions(c Command) any {
	ctx, free := soon()
	defer free()
	topics, err := d.admin.ListTopics(ctx, c.Topic)
	Must(err)
	Must(topics[c.Topic].Err)
	return len(topics[c.Topic].Partitions)
}

func (d *driver) addPartitions(c Command) any {
	ctx, free := soon()
	defer free()
	answers, err := d.admin.UpdatePartitions(ctx, int(c.Total), c.Topic)
	Must(err)
	Must(answers.Error())
	return nil
}

func (d *driver) config(c Command) any {
	ctx, free := soon()
	defer free()
	described, err := d.admin.DescribeTopicConfigs(ctx, c.Topic)
	Must(err)
	one, err := described.On(c.Topic, nil)
	Must(err)
	Must(one.Err)
	values := map[string]*string{}
	for _, entry := range one.Configs {
		values[entry.Key] = entry.Value
	}
	return values
}

func (d *driver) setConfig(c Command) any {
	changes := []kadm.AlterConfig{}
	for name, value := range c.Config {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	ctx, free := soon()
	defer free()
	answers, err := d.admin.AlterTopicConfigs(ctx, changes, c.Topic)
	Must(err)
	one, err := answers.On(c.Topic, nil)
	Must(err)
	Must(one.Err)
	return nil
}

func (d *driver) deleteRecords(c Command) any {
	offsets := kadm.Offsets{}
	for partition, offset := range c.Before {
		offsets.Add(kadm.Offset{Topic: c.Topic, Partition: Number(partition), At: offset})
	}
	ctx, free := soon()
	defer free()
	answers, err := d.admin.DeleteRecords(ctx, offsets)
	Must(err)
	Must(answers.Error())
	starts := map[int32]int64{}
	for _, one := range answers.Sorted() {
		starts[one.Partition] = one.LowWatermark
	}
	return starts
}

func (d *driver) deleteTopic(c Command) any {
	ctx, free := soon()
	defer free()
	_, err := d.admin.DeleteTopic(ctx, c.Topic)
	Must(err)
	return nil
}

func (d *driver) group(c Command) any {
	ctx, free := soon()
	defer free()
	groups, err := d.admin.DescribeGroups(ctx, c.Group)
	Must(err)
	described := groups[c.Group]
	Must(described.Err)
	members := []string{}
	for _, member := range described.Members {
		members = append(members, member.ClientID)
	}
	sort.Strings(members)
	return map[string]any{"state": described.State, "members": members}
}

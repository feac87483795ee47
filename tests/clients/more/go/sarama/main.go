// Sarama: https://github.com/IBM/sarama
package main

import (
	"context"
	"errors"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/IBM/sarama"

	. "clients/serving"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var strategies = map[string]func() sarama.BalanceStrategy{
	"":           sarama.NewBalanceStrategyRange,
	"range":      sarama.NewBalanceStrategyRange,
	"roundrobin": sarama.NewBalanceStrategyRoundRobin,
	"sticky":     sarama.NewBalanceStrategySticky,
}

type driver struct {
	bootstrap     []string
	admin         sarama.ClusterAdmin
	member        *member
	inbox         Inbox
	transactional sarama.SyncProducer
}

func main() {
	d := &driver{bootstrap: []string{os.Args[1]}}
	var err error
	d.admin, err = sarama.NewClusterAdmin(d.bootstrap, config())
	if err != nil {
		panic(err)
	}
	Serve(d)
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_1_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	return config
}

func (d *driver) Name(err error) string {
	var many sarama.ProducerErrors
	if errors.As(err, &many) {
		err = many[0].Err
	}
	for _, known := range []sarama.KError{
		sarama.ErrProducerFenced, sarama.ErrInvalidProducerEpoch, sarama.ErrTopicAlreadyExists, sarama.ErrNonEmptyGroup,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "Error"
}

func (d *driver) Commands() map[string]func(Command) any {
	return map[string]func(Command) any{
		"hello":          func(Command) any { return "sarama" },
		"produce":        d.produce,
		"read":           d.read,
		"offset_at":      d.offsetAt,
		"join":           d.join,
		"assigned":       func(Command) any { return d.member.assigned() },
		"taken":          func(Command) any { return d.inbox.Take() },
		"commit":         func(Command) any { d.member.commit(); return nil },
		"leave":          func(Command) any { d.leave(); return nil },
		"set_offsets":    d.setOffsets,
		"committed":      d.committed,
		"txn_open":       d.txnOpen,
		"txn_begin":      func(Command) any { Must(d.transactional.BeginTxn()); return nil },
		"txn_send":       func(c Command) any { return send(d.transactional, c) },
		"txn_offsets":    d.txnOffsets,
		"txn_commit":     func(Command) any { Must(d.transactional.CommitTxn()); return nil },
		"txn_abort":      func(Command) any { Must(d.transactional.AbortTxn()); return nil },
		"txn_close":      func(Command) any { d.txnClose(); return nil },
		"create_topic":   d.createTopic,
		"partitions":     d.partitions,
		"add_partitions": func(c Command) any { Must(d.admin.CreatePartitions(c.Topic, c.Total, nil, false)); return nil },
		"config":         d.config,
		"set_config":     d.setConfig,
		"delete_records": d.deleteRecords,
		"delete_topic":   func(c Command) any { Must(d.admin.DeleteTopic(c.Topic)); return nil },
		"topics":         d.topics,
		"groups":         d.groups,
		"group":          d.group,
		"delete_group":   func(c Command) any { Must(d.admin.DeleteConsumerGroup(c.Group)); return nil },
	}
}

func (d *driver) Reset() {
	d.leave()
	d.inbox.Take()
	d.txnClose()
}

// -- producing and reading ------------------------------------------------------------------------------------

func (d *driver) produce(c Command) any {
	config := config()
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse,
	}[c.Acks]
	config.Producer.Compression = codecs[c.Codec]
	if c.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(d.bootstrap, config)
	Must(err)
	defer producer.Close()
	return send(producer, c)
}

func send(producer sarama.SyncProducer, c Command) any {
	var messages []*sarama.ProducerMessage
	for _, one := range c.Records {
		message := &sarama.ProducerMessage{Topic: c.Topic, Partition: one.Partition, Timestamp: one.When()}
		if one.Key != nil {
			message.Key = sarama.ByteEncoder(one.Key)
		}
		if one.Value != nil {
			message.Value = sarama.ByteEncoder(one.Value)
		}
		for _, header := range one.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, message)
	}
	Must(producer.SendMessages(messages))
	placed := [][]int64{}
	for _, message := range messages {
		placed = append(placed, []int64{int64(message.Partition), message.Offset})
	}
	return placed
}

func found(message *sarama.ConsumerMessage) Record {
	headers := []Header{}
	for _, header := range message.Headers {
		headers = append(headers, Header{Name: string(header.Key), Value: header.Value})
	}
	return Record{
		Topic: message.Topic, Partition: message.Partition, Offset: message.Offset, Time: message.Timestamp.UnixMilli(),
		Key: message.Key, Value: message.Value, Headers: headers,
	}
}

func isolation(config *sarama.Config, name string) {
	if name == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
}

func (d *driver) read(c Command) any {
	config := config()
	isolation(config, c.Isolation)
	consumer, err := sarama.NewConsumer(d.bootstrap, config)
	Must(err)
	defer consumer.Close()
	messages := make(chan *sarama.ConsumerMessage)
	stop := make(chan struct{})
	defer close(stop)
	for partition, offset := range c.First {
		one, err := consumer.ConsumePartition(c.Topic, Number(partition), offset)
		Must(err)
		defer one.AsyncClose()
		go func() {
			for message := range one.Messages() {
				select {
				case messages <- message:
				case <-stop:
				}
			}
		}()
	}
	reading := NewReading(c.Last)
	quiet := time.Duration(c.QuietMs) * time.Millisecond
	for !reading.Done() {
		select {
		case message := <-messages:
			reading.Add(found(message))
		case <-time.After(quiet):
			return reading.Records
		}
	}
	return reading.Records
}

func (d *driver) offsetAt(c Command) any {
	client, err := sarama.NewClient(d.bootstrap, config())
	Must(err)
	defer client.Close()
	offset, err := client.GetOffset(c.Topic, c.Partition, c.Timestamp)
	Must(err)
	return offset
}

// -- groups ---------------------------------------------------------------------------------------------------

type member struct {
	group   sarama.ConsumerGroup
	cancel  context.CancelFunc
	ended   chan struct{}
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
	taken   map[string]map[int32]int64
	inbox   *Inbox
}

func (d *driver) join(c Command) any {
	config := config()
	config.ClientID = c.ClientID
	isolation(config, c.Isolation)
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = time.Duration(c.SessionMs) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[c.Assignor]()}
	if c.Instance != nil {
		config.Consumer.Group.InstanceId = *c.Instance
	}
	group, err := sarama.NewConsumerGroup(d.bootstrap, c.Group, config)
	Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{group: group, cancel: cancel, ended: make(chan struct{}), inbox: &d.inbox}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, c.Topics, m); err != nil {
				println("consume:", err.Error())
				time.Sleep(50 * time.Millisecond)
			}
		}
	}()
	d.member = m
	return nil
}

// Setup begins a generation.
func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	m.taken = map[string]map[int32]int64{}
	return nil
}

// Cleanup ends a generation.
func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = nil
	return nil
}

// ConsumeClaim takes the records of one partition.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		m.inbox.Put(found(message))
	}
	return nil
}

func (m *member) assigned() any {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	held := [][]any{}
	if m.session != nil {
		for topic, partitions := range m.session.Claims() {
			for _, partition := range partitions {
				held = append(held, []any{topic, partition})
			}
		}
	}
	return held
}

func (m *member) commit() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.session != nil {
		m.session.Commit()
	}
}

func (d *driver) leave() {
	if d.member != nil {
		d.member.cancel()
		<-d.member.ended
		Must(d.member.group.Close())
		d.member = nil
	}
}

func (d *driver) setOffsets(c Command) any {
	offsets := map[string]map[int32]sarama.OffsetAndMetadata{}
	for _, one := range c.Offsets {
		if offsets[one.Topic] == nil {
			offsets[one.Topic] = map[int32]sarama.OffsetAndMetadata{}
		}
		offsets[one.Topic][one.Partition] = sarama.OffsetAndMetadata{Offset: one.Offset, Metadata: one.Text, LeaderEpoch: -1}
	}
	answer, err := d.admin.AlterConsumerGroupOffsets(c.Group, offsets, nil)
	Must(err)
	for _, partitions := range answer.Errors {
		for _, code := range partitions {
			if code != sarama.ErrNoError {
				Must(code)
			}
		}
	}
	return nil
}

func (d *driver) committed(c Command) any {
	wanted := map[string][]int32{}
	for _, one := range c.Wanted() {
		wanted[one.Topic] = append(wanted[one.Topic], one.Partition)
	}
	kept, err := d.admin.ListConsumerGroupOffsets(c.Group, wanted)
	Must(err)
	answer := []any{}
	for _, one := range c.Wanted() {
		block := kept.GetBlock(one.Topic, one.Partition)
		if block.Err != sarama.ErrNoError {
			Must(block.Err)
		}
		answer = append(answer, Committed(one.Topic, one.Partition, block.Offset, block.Metadata))
	}
	return answer
}

// -- transactions ---------------------------------------------------------------------------------------------

func (d *driver) txnOpen(c Command) any {
	config := config()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = c.ID
	config.Producer.Transaction.Timeout = time.Duration(c.TimeoutMs) * time.Millisecond
	config.Producer.Compression = codecs[c.Codec]
	var err error
	d.transactional, err = sarama.NewSyncProducer(d.bootstrap, config)
	Must(err)
	return nil
}

func (d *driver) txnOffsets(c Command) any {
	offsets := map[string][]*sarama.PartitionOffsetMetadata{}
	for _, one := range c.Offsets {
		offsets[one.Topic] = append(offsets[one.Topic], &sarama.PartitionOffsetMetadata{Partition: one.Partition, Offset: one.Offset, LeaderEpoch: -1})
	}
	Must(d.transactional.AddOffsetsToTxn(offsets, c.Group))
	return nil
}

func (d *driver) txnClose() {
	if d.transactional != nil {
		_ = d.transactional.Close() // a fenced producer says so again
		d.transactional = nil
	}
}

// -- administration -------------------------------------------------------------------------------------------

func (d *driver) createTopic(c Command) any {
	config := map[string]*string{}
	for name, value := range c.Config {
		config[name] = &value
	}
	Must(d.admin.CreateTopic(c.Topic, &sarama.TopicDetail{NumPartitions: c.Count(), ReplicationFactor: 1, ConfigEntries: config}, false))
	return nil
}

func (d *driver) partitions(c Command) any {
	described, err := d.admin.DescribeTopics([]string{c.Topic})
	Must(err)
	if described[0].Err != sarama.ErrNoError {
		Must(described[0].Err)
	}
	return len(described[0].Partitions)
}

func (d *driver) config(c Command) any {
	entries, err := d.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.Topic})
	Must(err)
	values := map[string]string{}
	for _, entry := range entries {
		values[entry.Name] = entry.Value
	}
	return values
}

func (d *driver) setConfig(c Command) any {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range c.Config {
		changes[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
	}
	Must(d.admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, changes, false))
	return nil
}

func (d *driver) deleteRecords(c Command) any {
	offsets := map[int32]int64{}
	for partition, offset := range c.Before {
		offsets[Number(partition)] = offset
	}
	Must(d.admin.DeleteRecords(c.Topic, offsets))
	return offsets // the client does not say what the new starts are
}

func (d *driver) topics(Command) any {
	topics, err := d.admin.ListTopics()
	Must(err)
	names := []string{}
	for name := range topics {
		names = append(names, name)
	}
	return names
}

func (d *driver) groups(Command) any {
	groups, err := d.admin.ListConsumerGroups()
	Must(err)
	names := []string{}
	for name := range groups {
		names = append(names, name)
	}
	return names
}

func (d *driver) group(c Command) any {
	groups, err := d.admin.DescribeConsumerGroups([]string{c.Group})
	Must(err)
	if groups[0].Err != sarama.ErrNoError {
		Must(groups[0].Err)
	}
	members := []string{}
	for _, one := range groups[0].Members {
		members = append(members, one.ClientId)
	}
	sort.Strings(members)
	return map[string]any{"state": groups[0].State, "members": members}
}

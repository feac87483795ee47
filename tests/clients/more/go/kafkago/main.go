// kafka-go: https://github.com/segmentio/kafka-go
package main

import (
	"context"
	"errors"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	. "clients/serving"
)

var codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

var balancers = map[string]kafka.GroupBalancer{
	"": kafka.RangeGroupBalancer{}, "range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
}

type driver struct {
	bootstrap string
	client    *kafka.Client
	member    *member
	inbox     Inbox
}

func main() {
	address := kafka.TCP(os.Args[1])
	d := &driver{bootstrap: os.Args[1], client: &kafka.Client{Addr: address, Timeout: 20 * time.Second}}
	Serve(d)
}

func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func (d *driver) Name(err error) string {
	var known kafka.Error
	if errors.As(err, &known) {
		return known.Title()
	}
	return "Error"
}

func (d *driver) Commands() map[string]func(Command) any {
	return map[string]func(Command) any{
		"hello":          func(Command) any { return "kafka-go" },
		"produce":        d.produce,
		"read":           d.read,
		"offset_at":      d.offsetAt,
		"join":           d.join,
		"assigned":       func(Command) any { return d.member.assigned() },
		"taken":          func(Command) any { return d.inbox.Take() },
		"commit":         func(Command) any { Must(d.member.commit()); return nil },
		"leave":          func(Command) any { d.leave(); return nil },
		"set_offsets":    d.setOffsets,
		"committed":      d.committed,
		"create_topic":   d.createTopic,
		"partitions":     d.partitions,
		"add_partitions": d.addPartitions,
		"config":         d.config,
		"set_config":     d.setConfig,
		"delete_topic":   d.deleteTopic,
		"topics":         d.topics,
		"groups":         d.groups,
		"group":          d.group,
		"delete_group":   d.deleteGroup,
	}
}

func (d *driver) Reset() {
	d.leave()
	d.inbox.Take()
}

// -- producing and reading ------------------------------------------------------------------------------------

func (d *driver) produce(c Command) any {
	acks := map[string]kafka.RequiredAcks{"all": kafka.RequireAll, "1": kafka.RequireOne, "0": kafka.RequireNone}[c.Acks]
	placed := make([][]int64, len(c.Records))
	type place struct {
		partition int
		number    int
	}
	writer := &kafka.Writer{
		Addr: kafka.TCP(d.bootstrap), Topic: c.Topic, RequiredAcks: acks, Compression: codecs[c.Codec],
		BatchTimeout: 20 * time.Millisecond, BatchSize: 10, AllowAutoTopicCreation: true,
		Balancer: kafka.BalancerFunc(func(message kafka.Message, _ ...int) int { return message.WriterData.(place).partition }),
		Completion: func(messages []kafka.Message, err error) {
			for _, message := range messages {
				placed[message.WriterData.(place).number] = []int64{int64(message.Partition), message.Offset}
			}
		},
	}
	var messages []kafka.Message
	for number, one := range c.Records {
		message := kafka.Message{Key: one.Key, Value: one.Value, Time: one.When(), WriterData: place{int(one.Partition), number}}
		for _, header := range one.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, message)
	}
	ctx, free := soon()
	defer free()
	err := writer.WriteMessages(ctx, messages...)
	for tries := 0; errors.Is(err, kafka.UnknownTopicOrPartition) && tries < 20; tries++ {
		time.Sleep(100 * time.Millisecond) // the client leaves it to its user to wait for a topic being made
		err = writer.WriteMessages(ctx, messages...)
	}
	Must(writer.Close())
	Must(err)
	return placed
}

func found(message kafka.Message) Record {
	headers := []Header{}
	for _, header := range message.Headers {
		headers = append(headers, Header{Name: header.Key, Value: header.Value})
	}
	return Record{
		Topic: message.Topic, Partition: int32(message.Partition), Offset: message.Offset, Time: message.Time.UnixMilli(),
		Key: message.Key, Value: message.Value, Headers: headers,
	}
}

func isolation(name string) kafka.IsolationLevel {
	if name == "read_committed" {
		return kafka.ReadCommitted
	}
	return kafka.ReadUncommitted
}

func (d *driver) reader(topic string, partition int32, offset int64, level string) *kafka.Reader {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{d.bootstrap}, Topic: topic, Partition: int(partition), IsolationLevel: isolation(level),
		MaxWait: 200 * time.Millisecond, MaxBytes: 10 << 20,
	})
	Must(reader.SetOffset(offset))
	return reader
}

func (d *driver) read(c Command) any {
	messages := make(chan kafka.Message)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for partition, offset := range c.First {
		reader := d.reader(c.Topic, Number(partition), offset, c.Isolation)
		defer reader.Close()
		go func() {
			for {
				message, err := reader.ReadMessage(ctx)
				if err != nil {
					return
				}
				select {
				case messages <- message:
				case <-ctx.Done():
					return
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
	ctx, free := soon()
	defer free()
	request := kafka.OffsetRequest{Partition: int(c.Partition), Timestamp: c.Timestamp}
	answer, err := d.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{c.Topic: {request}}})
	Must(err)
	one := answer.Topics[c.Topic][0]
	Must(one.Error)
	switch c.Timestamp {
	case -1:
		return one.LastOffset
	case -2:
		return one.FirstOffset
	}
	for offset := range one.Offsets {
		return offset
	}
	return -1
}

// -- groups ---------------------------------------------------------------------------------------------------

type member struct {
	group      *kafka.ConsumerGroup
	cancel     context.CancelFunc
	mutex      sync.Mutex
	generation *kafka.Generation
	next       map[string]map[int]int64
}

func (d *driver) join(c Command) any {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: c.Group, Brokers: []string{d.bootstrap}, Topics: c.Topics, StartOffset: kafka.FirstOffset,
		Dialer:         &kafka.Dialer{ClientID: c.ClientID, Timeout: 10 * time.Second},
		GroupBalancers: []kafka.GroupBalancer{balancers[c.Assignor]}, HeartbeatInterval: 500 * time.Millisecond,
		SessionTimeout: time.Duration(c.SessionMs) * time.Millisecond, RebalanceTimeout: 10 * time.Second,
		JoinGroupBackoff: 200 * time.Millisecond,
	})
	Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{group: group, cancel: cancel}
	d.member = m
	go func() {
		for ctx.Err() == nil {
			generation, err := group.Next(ctx)
			if err != nil {
				if errors.Is(err, kafka.ErrGroupClosed) || ctx.Err() != nil {
					return
				}
				continue
			}
			m.begin(d, generation, c.Isolation)
		}
	}()
	return nil
}

func (m *member) begin(d *driver, generation *kafka.Generation, level string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.generation = generation
	m.next = map[string]map[int]int64{}
	for topic, assignments := range generation.Assignments {
		m.next[topic] = map[int]int64{}
		for _, one := range assignments {
			generation.Start(func(ctx context.Context) {
				reader := d.reader(topic, int32(one.ID), one.Offset, level)
				defer reader.Close()
				for {
					message, err := reader.ReadMessage(ctx)
					if err != nil {
						return
					}
					m.mutex.Lock()
					if m.generation == generation {
						m.next[topic][one.ID] = message.Offset + 1
						d.inbox.Put(found(message))
					}
					m.mutex.Unlock()
				}
			})
		}
	}
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		m.mutex.Lock()
		defer m.mutex.Unlock()
		if m.generation == generation {
			m.generation = nil
		}
	})
}

func (m *member) assigned() any {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	held := [][]any{}
	if m.generation != nil {
		for topic, assignments := range m.generation.Assignments {
			for _, one := range assignments {
				held = append(held, []any{topic, one.ID})
			}
		}
	}
	return held
}

func (m *member) commit() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.generation.CommitOffsets(m.next)
}

func (d *driver) leave() {
	if d.member != nil {
		d.member.cancel()
		Must(d.member.group.Close())
		d.member = nil
	}
}

func (d *driver) setOffsets(c Command) any {
	topics := map[string][]kafka.OffsetCommit{}
	for _, one := range c.Offsets {
		topics[one.Topic] = append(topics[one.Topic], kafka.OffsetCommit{Partition: int(one.Partition), Offset: one.Offset, Metadata: one.Text})
	}
	ctx, free := soon()
	defer free()
	answer, err := d.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: c.Group, GenerationID: -1, Topics: topics})
	Must(err)
	for _, partitions := range answer.Topics {
		for _, one := range partitions {
			Must(one.Error)
		}
	}
	return nil
}

func (d *driver) committed(c Command) any {
	topics := map[string][]int{}
	for _, one := range c.Wanted() {
		topics[one.Topic] = append(topics[one.Topic], int(one.Partition))
	}
	ctx, free := soon()
	defer free()
	kept, err := d.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.Group, Topics: topics})
	Must(err)
	Must(kept.Error)
	answer := []any{}
	for _, wanted := range c.Wanted() {
		for _, one := range kept.Topics[wanted.Topic] {
			if int32(one.Partition) == wanted.Partition {
				Must(one.Error)
				answer = append(answer, Committed(wanted.Topic, wanted.Partition, one.CommittedOffset, one.Metadata))
			}
		}
	}
	return answer
}

// -- administration -------------------------------------------------------------------------------------------

func (d *driver) createTopic(c Command) any {
	topic := kafka.TopicConfig{Topic: c.Topic, NumPartitions: int(c.Count()), ReplicationFactor: 1}
	for name, value := range c.Config {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	ctx, free := soon()
	defer free()
	answer, err := d.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	Must(err)
	Must(answer.Errors[c.Topic])
	return nil
}

func (d *driver) metadata(topics ...string) *kafka.MetadataResponse {
	ctx, free := soon()
	defer free()
	answer, err := d.client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
	Must(err)
	return answer
}

func (d *driver) partitions(c Command) any {
	topic := d.metadata(c.Topic).Topics[0]
	Must(topic.Error)
	return len(topic.Partitions)
}

func (d *driver) addPartitions(c Command) any {
	ctx, free := soon()
	defer free()
	answer, err := d.client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: c.Topic, Count: c.Total}},
	})
	Must(err)
	Must(answer.Errors[c.Topic])
	return nil
}

func (d *driver) config(c Command) any {
	ctx, free := soon()
	defer free()
	answer, err := d.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic}},
	})
	Must(err)
	Must(answer.Resources[0].Error)
	values := map[string]string{}
	for _, entry := range answer.Resources[0].ConfigEntries {
		values[entry.ConfigName] = entry.ConfigValue
	}
	return values
}

func (d *driver) setConfig(c Command) any {
	resource := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic}
	for name, value := range c.Config {
		resource.Configs = append(resource.Configs, kafka.IncrementalAlterConfigsRequestConfig{
			Name: name, Value: value, ConfigOperation: kafka.ConfigOperationSet,
		})
	}
	ctx, free := soon()
	defer free()
	answer, err := d.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
	})
	Must(err)
	Must(answer.Resources[0].Error)
	return nil
}

func (d *driver) deleteTopic(c Command) any {
	ctx, free := soon()
	defer free()
	answer, err := d.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{c.Topic}})
	Must(err)
	Must(answer.Errors[c.Topic])
	return nil
}

func (d *driver) topics(Command) any {
	names := []string{}
	for _, topic := range d.metadata().Topics {
		names = append(names, topic.Name)
	}
	return names
}

func (d *driver) groups(Command) any {
	ctx, free := soon()
	defer free()
	answer, err := d.client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	Must(err)
	Must(answer.Error)
	names := []string{}
	for _, group := range answer.Groups {
		names = append(names, group.GroupID)
	}
	return names
}

func (d *driver) group(c Command) any {
	ctx, free := soon()
	defer free()
	answer, err := d.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{c.Group}})
	Must(err)
	Must(answer.Groups[0].Error)
	members := []string{}
	for _, one := range answer.Groups[0].Members {
		members = append(members, one.ClientID)
	}
	sort.Strings(members)
	return map[string]any{"state": answer.Groups[0].GroupState, "members": members}
}

func (d *driver) deleteGroup(c Command) any {
	ctx, free := soon()
	defer free()
	answer, err := d.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{c.Group}})
	Must(err)
	Must(answer.Errors[c.Group])
	return nil
}

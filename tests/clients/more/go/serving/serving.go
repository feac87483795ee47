// Package serving is what the drivers in Go share: the loop over commands, and records in JSON.
// tests/clients/peer.py says what the drivers are told and what they answer.
package serving

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// Header is a name and a value, which may be absent.
type Header struct {
	Name  string
	Value []byte
}

// MarshalJSON writes a header as [name, value].
func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

// UnmarshalJSON reads a header from [name, value].
func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

// Record is a record as it stands in JSON: byte slices are written in base 64, absent ones as null.
type Record struct {
	Topic     string   `json:"topic,omitempty"`
	Partition int32    `json:"p"`
	Offset    int64    `json:"o"`
	Time      int64    `json:"t"`
	Key       []byte   `json:"k"`
	Value     []byte   `json:"v"`
	Headers   []Header `json:"h"`
}

// When is the record's time.
func (r Record) When() time.Time { return time.UnixMilli(r.Time) }

// At is an offset of a partition, with a text or without: [topic, partition, offset, text].
type At struct {
	Topic     string
	Partition int32
	Offset    int64
	Text      string
}

// UnmarshalJSON reads what is there of the four.
func (a *At) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&a.Topic, &a.Partition, &a.Offset, &a.Text})
}

// Committed is an offset of a group as the answer has it; a negative offset is none.
func Committed(topic string, partition int32, offset int64, text string) []any {
	if offset < 0 {
		return []any{topic, partition, nil, ""}
	}
	return []any{topic, partition, offset, text}
}

// Command has the fields of all commands.
type Command struct {
	Do         string            `json:"do"`
	Topic      string            `json:"topic"`
	Codec      string            `json:"codec"`
	Acks       string            `json:"acks"`
	Idempotent bool              `json:"idempotent"`
	Records    []Record          `json:"records"`
	Isolation  string            `json:"isolation"`
	First      map[string]int64  `json:"first"`
	Last       map[string]int64  `json:"last"`
	QuietMs    int64             `json:"quiet_ms"`
	Partition  int32             `json:"partition"`
	Timestamp  int64             `json:"timestamp"`
	Group      string            `json:"group"`
	Topics     []string          `json:"topics"`
	Protocol   string            `json:"protocol"`
	Assignor   string            `json:"assignor"`
	SessionMs  int64             `json:"session_ms"`
	Instance   *string           `json:"instance"`
	ClientID   string            `json:"client_id"`
	Offsets    []At              `json:"offsets"`
	Partitions json.RawMessage   `json:"partitions"` // pairs to ask for, or how many to make
	ID         string            `json:"id"`
	TimeoutMs  int64             `json:"timeout_ms"`
	Config     map[string]string `json:"config"`
	Total      int32             `json:"total"`
	Before     map[string]int64  `json:"before"`
}

// Count is the number of partitions to make.
func (c Command) Count() int32 {
	count, err := strconv.Atoi(string(c.Partitions))
	Must(err)
	return int32(count)
}

// Wanted are the partitions to ask for.
func (c Command) Wanted() []At {
	var wanted []At
	Must(json.Unmarshal(c.Partitions, &wanted))
	return wanted
}

// Number is a key of a JSON object that is a partition.
func Number(text string) int32 {
	number, err := strconv.Atoi(text)
	Must(err)
	return int32(number)
}

// Must ends a command with the error, when there is one.
func Must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

type failure struct{ err error }

// Named is an error with the client's own name for it.
type Named interface {
	error
	Name() string
}

// Driver does commands by their names; Name says how the client calls an error.
type Driver interface {
	Commands() map[string]func(Command) any
	Name(error) string
	Reset()
}

// Serve answers commands until standard input ends.
func Serve(driver Driver) {
	commands := driver.Commands()
	commands["reset"] = func(Command) any { driver.Reset(); return nil }
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			driver.Reset()
			return
		}
		var command Command
		if err := json.Unmarshal(line, &command); err != nil {
			panic(err)
		}
		if err := out.Encode(answer(driver, commands, command)); err != nil {
			panic(err)
		}
	}
}

func answer(driver Driver, commands map[string]func(Command) any, command Command) (result map[string]any) {
	defer func() {
		if stopped := recover(); stopped != nil {
			failed, ours := stopped.(failure)
			if !ours {
				panic(stopped)
			}
			fmt.Fprintln(os.Stderr, command.Do, failed.err)
			result = map[string]any{"error": driver.Name(failed.err), "message": failed.err.Error()}
		}
	}()
	do, known := commands[command.Do]
	if !known {
		return map[string]any{"error": "Unsupported", "message": command.Do}
	}
	return map[string]any{"ok": do(command)}
}

// Reading collects what a read finds until the last offset of every partition was seen.
type Reading struct {
	left    map[int32]int64
	Records []Record
}

// NewReading starts to collect up to the offsets by partition.
func NewReading(last map[string]int64) *Reading {
	left := map[int32]int64{}
	for partition, offset := range last {
		left[Number(partition)] = offset
	}
	return &Reading{left: left, Records: []Record{}}
}

// Add keeps a record, unless it lies past the last one asked for.
func (r *Reading) Add(record Record) {
	last, wanted := r.left[record.Partition]
	if !wanted {
		return
	}
	if record.Offset >= last {
		delete(r.left, record.Partition)
	}
	if record.Offset <= last {
		r.Records = append(r.Records, record)
	}
}

// Done says whether all was seen.
func (r *Reading) Done() bool { return len(r.left) == 0 }

// Inbox holds what a member has taken, for another goroutine to drain.
type Inbox struct {
	mutex   sync.Mutex
	records []Record
}

// Put adds a record.
func (i *Inbox) Put(record Record) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.records = append(i.records, record)
}

// Take drains the box.
func (i *Inbox) Take() []Record {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	taken := i.records
	i.records = nil
	if taken == nil {
		taken = []Record{}
	}
	return taken
}

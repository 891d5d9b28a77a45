// Package fleet counts the processes that live and share one Redis: each keeps a
// heartbeat there. Open heartbeat.go first; loop.go is the goroutine, headcount.go
// what is believed of a count, fleet.go what is told.
package fleet

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Status is what a Heartbeat knows of the processes that use one Redis and key
// prefix. It holds no secret.
type Status struct {
	// ID is what this process is called among them: random, and new at each start.
	ID string

	// Instances is the number that limits are divided by; 0 before the first
	// answer.
	Instances int64

	// Counted is how many lived at the last answer, this one included; 0 before
	// the first. It is below Instances while the hold lasts.
	Counted int64

	// Rules groups them by the hash of their rules, the largest group first, up to
	// 16 groups.
	Rules []Group

	// Oldest is how long before the last answer the one was seen that was seen
	// least lately, by Redis' clock.
	Oldest time.Duration

	// Answered is when Redis last answered, by this process' clock; zero before the
	// first answer. Age is how long ago that was.
	Answered time.Time
	Age      time.Duration

	// LastReason is the Reason of the last heartbeat, empty where it was answered.
	LastReason string
}

// Group is how many of a Status have the rules with one hash.
type Group struct {
	// Hash is that of the rules, NoRules where a process has none yet.
	Hash string

	// Instances is how many have them.
	Instances int64
}

// errReply is an answer that makes no sense.
var errReply = errors.New("reading the reply of Redis")

// NoRules stands for the hash where a process knows no rules.
const NoRules = "none"

// Disagree is how many have other rules than the largest group: 0 while all agree.
func (f Status) Disagree() int64 {
	if len(f.Rules) == 0 {
		return 0
	}
	return f.Counted - f.Rules[0].Instances
}

// EventKind says what changed in a Status.
type EventKind uint8

// The kinds of events.
const (
	// InstancesChanged: limits are divided by another number.
	InstancesChanged EventKind = iota + 1
	// HeartbeatLost: nothing was answered for as long as a heartbeat lasts, so that
	// others may have forgotten this process. It is told once.
	HeartbeatLost
	// HeartbeatBack: one was answered after that.
	HeartbeatBack
	// RulesDisagree: for over a minute, not all have had the same rules. It is told
	// once.
	RulesDisagree
	// RulesAgree: all have the same rules after that.
	RulesAgree
)

// String returns a short phrase for logs.
func (k EventKind) String() string {
	switch k {
	case InstancesChanged:
		return "the number of gateways has changed"
	case HeartbeatLost:
		return "the gateways cannot be counted, the last number stays"
	case HeartbeatBack:
		return "the gateways are counted again"
	case RulesDisagree:
		return "gateways have had different rules for over a minute"
	case RulesAgree:
		return "all gateways have the same rules again"
	default:
		return ""
	}
}

// Event is a change in a Status, for a log.
type Event struct {
	// Kind says what happened.
	Kind EventKind

	// Status is what is known now.
	Status Status

	// Was is what Instances were before InstancesChanged; 0 where nothing was known.
	Was int64
}

// read reads the reply of the script into f.
func (f *Status) read(reply any) error {
	list, _ := reply.([]any)
	if len(list) < 2 || len(list)%2 != 0 {
		return fmt.Errorf("%w: a heartbeat's has a wrong length", errReply)
	}
	live, ok1 := list[0].(int64)
	oldest, ok2 := list[1].(int64)
	if !ok1 || !ok2 || live < 1 {
		return fmt.Errorf("%w: a heartbeat's has no count", errReply)
	}
	groups := make([]Group, 0, len(list)/2-1)
	for i := 2; i < len(list); i += 2 {
		hash, ok1 := list[i].(string)
		n, ok2 := list[i+1].(int64)
		if !ok1 || !ok2 {
			return fmt.Errorf("%w: a heartbeat's has a broken group", errReply)
		}
		groups = append(groups, Group{hash, n})
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return int(b.Instances - a.Instances) })
	f.Counted, f.Oldest, f.Rules = live, time.Duration(oldest)*time.Millisecond, groups
	return nil
}

package rulecache

import "time"

// EventKind is what an Event tells of.
type EventKind uint8

// The kinds of events.
const (
	// EventLoaded: a set of rules that differs from the one before is in force.
	EventLoaded EventKind = iota + 1
	// EventFailed: rules could not be loaded, for the first time in a row or for
	// another reason than before. The old ones stay.
	EventFailed
	// EventRecovered: rules could be loaded after they could not.
	EventRecovered
	// EventListening: every change is announced from now on.
	EventListening
	// EventListenLost: the listening connection failed and is made again.
	EventListenLost
	// EventPollOnly: changes are not announced, because of a pooler between, because
	// the server is a standby, or because the table has no trigger that does. Rules
	// are polled, which is a warning.
	EventPollOnly
	// EventStoredUsed: the stored snapshot is in force until PostgreSQL answers.
	EventStoredUsed
	// EventStoreFailed: the snapshot in force could not be stored.
	EventStoreFailed
	// EventStoredUnusable: the stored snapshot could not be read, or was broken.
	EventStoredUnusable
)

// String returns a short phrase for the kind, as a log message has it.
func (k EventKind) String() string {
	switch k {
	case EventLoaded:
		return "rules loaded"
	case EventFailed:
		return "loading rules failed"
	case EventRecovered:
		return "loading rules works again"
	case EventListening:
		return "listening for changes of rules"
	case EventListenLost:
		return "listening for changes of rules failed"
	case EventPollOnly:
		return "rules are polled only"
	case EventStoredUsed:
		return "stored rules in force"
	case EventStoreFailed:
		return "storing rules failed"
	case EventStoredUnusable:
		return "reading the stored rules failed"
	default:
		return "unknown"
	}
}

// Event is something that happened to a Source.
type Event struct {
	// Kind is what happened.
	Kind EventKind
	// Err is why, where something failed. It holds nothing of the DSN.
	Err error
	// Rules and Rejected count the rules in force and the rows that made none.
	Rules, Rejected int
	// Took is how long the load took, for EventLoaded.
	Took time.Duration
}

// Status is how a Source fares.
type Status struct {
	// Running tells whether anyone has started the Source.
	Running bool
	// Listening tells whether changes are announced: the connection that listens
	// stands, and the table has the trigger that notifies its channel.
	Listening bool
	// PollOnly is why they are not, "" where they are, are not wanted, or the
	// connection is being made again.
	PollOnly string
	// LastSuccess is when the table was last known to be what is in force: it was
	// seen then, or it was proved that a change would have been announced.
	LastSuccess time.Time
	// Failures is the number of loads that failed in a row.
	Failures int
	// Loads and FailedLoads count the loads that succeeded and those that failed
	// since the Source was made. A load that finds the table unchanged counts.
	Loads, FailedLoads uint64
	// LastError is why the last load failed, "" after a success. It holds
	// nothing of the DSN.
	LastError string
	// Rules and Rejected count the rules in force and the rows that made none.
	Rules, Rejected int
	// Hash is the hash of the rules in force, see Snapshot.Hash; "" where none are known.
	Hash string
	// Age is the time since LastSuccess, or since the stored rules in force were
	// read; 0 where none are known.
	Age time.Duration
}

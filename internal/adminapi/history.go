package adminapi

import (
	"math"
	"net/http"
	"time"
)

// The paths of what happened lately.
const (
	HistoryPath = Root + "history"
	EventsPath  = Root + "events"
)

// HistoryCall asks for the requests of the last 15 minutes.
func HistoryCall() Call { return Call{http.MethodGet, HistoryPath, nil, callTimeout} }

// EventsCall asks for the last changes of state.
func EventsCall() Call { return Call{http.MethodGet, EventsPath, []string{"after"}, callTimeout} }

// History is the answer to GET /rate_limit/history.
type History struct {
	// From is when the first count began; the last one ends At, and may be of a part
	// of a step.
	From time.Time `json:"from"`
	At   time.Time `json:"at"`

	// StepSeconds is the time that each count is of.
	StepSeconds float64 `json:"step_seconds"`

	// Series are those with a request in that time.
	Series []HistorySeries `json:"series"`
}

// HistorySeries is how many requests had one outcome by one source, in each step.
type HistorySeries struct {
	Outcome string  `json:"outcome"`
	Source  string  `json:"source"`
	Counts  []int64 `json:"counts"`
}

// Events is the answer to GET /rate_limit/events.
type Events struct {
	// Events are the last ones, the oldest first.
	Events []Event `json:"events"`

	// Last is the number of the last event that there was: what the parameter after
	// takes, to go on. It is lower than before once the gateway was started anew.
	Last int64 `json:"last"`
}

// Event is a change of state: Name and Data are those of Caddy's event.
type Event struct {
	Number int64          `json:"number"`
	At     time.Time      `json:"at"`
	Name   string         `json:"name"`
	Data   map[string]any `json:"data,omitempty"`
}

// MaxAfter is the highest number that the parameter after takes.
const MaxAfter = math.MaxInt64 - 1

package adminapi

import "time"

// History is the answer to GET /rate_limit/history: how many requests got what, in
// steps of the last minutes. It begins anew with the process, and goes on over a
// reload.
type History struct {
	// StepSeconds is how long a step is.
	StepSeconds int `json:"step_seconds"`

	// End is when the last step ended.
	End time.Time `json:"end"`

	// Series come in the order of outcome and source. One that was 0 in all steps is
	// left out.
	Series []Series `json:"series"`
}

// Series is the requests of one outcome by one source, in the words of the metric
// requests_total, in each step: all Counts are of the same length, the newest last.
type Series struct {
	Outcome string  `json:"outcome"`
	Source  string  `json:"source"`
	Counts  []int64 `json:"counts"`
}

// Events is the answer to GET /rate_limit/events: changes of state, the newest last.
type Events struct {
	// Last is the number of the newest, for the parameter after of the next call; 0
	// where there is none. A smaller one than before tells that the gateway has started
	// anew.
	Last int64 `json:"last"`

	// Lost is how many after the one that was named are not kept any more.
	Lost int64 `json:"lost,omitempty"`

	// Events are those that are kept.
	Events []Event `json:"events"`
}

// Event is a change of state, as subscribers of Caddy's events are told it.
type Event struct {
	Number int64          `json:"number"`
	At     time.Time      `json:"at"`
	Event  string         `json:"event"`
	Data   map[string]any `json:"data,omitempty"`
}

package adminapi

import "time"

// Status is the answer to GET /rate_limit/status.
type Status struct {
	Version     string        `json:"version"`
	Caddy       string        `json:"caddy"`
	Source      string        `json:"source"`
	Deciding    string        `json:"deciding"`
	Instances   int           `json:"instances"`
	Fleet       *Fleet        `json:"fleet,omitempty"`
	Fallback    string        `json:"fallback,omitempty"`
	Redis       *Redis        `json:"redis,omitempty"`
	Rules       *RulesInForce `json:"rules,omitempty"`
	Region      *Region       `json:"region,omitempty"`
	Charges     *Charges      `json:"charges,omitempty"`
	StaticRules int           `json:"static_rules"`
	NoRoute     int           `json:"rules_for_no_route"`
	Routes      []string      `json:"routes"`
	Memory      Memory        `json:"memory"`
}

// Charges is what became of requests that are charged by their answers, since the
// gateway was started: Unread answers that did not say what they cost, and Lost
// requests whose cost was not settled. Bans is how many bans hold that it has seen.
type Charges struct {
	Unread int64 `json:"unread"`
	Lost   int64 `json:"lost"`
	Bans   int   `json:"bans"`
}

// By whom is decided: with the other gateways, through Redis, or by this gateway
// alone, for want of Redis or because of what it does not know.
const (
	DecidingShared      = "shared"
	DecidingAlone       = "alone"
	DecidingNoRules     = "rules_unknown"
	DecidingNoShare     = "share_unknown"
	DecidingLapsed      = "share_lapsed"
	DecidingShareIsBack = "share_given_back"
)

// Fleet is what a gateway knows of those that count themselves with it.
type Fleet struct {
	ID                  string       `json:"id"`
	Counted             int64        `json:"counted"`
	OldestSeconds       float64      `json:"oldest_seconds"`
	HeartbeatAgeSeconds float64      `json:"heartbeat_age_seconds"`
	LastError           string       `json:"last_error,omitempty"`
	Disagree            int64        `json:"disagree"`
	Rules               []FleetRules `json:"rules"`
}

// FleetRules is how many gateways have the rules with one hash.
type FleetRules struct {
	Hash      string `json:"hash"`
	Instances int64  `json:"instances"`
}

// Redis is how the Redis fares that the gateway talks to.
type Redis struct {
	KeyPrefix string  `json:"key_prefix"`
	TimeoutMs float64 `json:"timeout_ms"`
	Nodes     []Node  `json:"nodes"`
}

// Node is how one server of Redis fares.
type Node struct {
	Address     string     `json:"address"`
	Breaker     string     `json:"breaker"`
	Since       *time.Time `json:"since,omitempty"`
	Connections int        `json:"connections"`
	LastError   *NodeError `json:"last_error,omitempty"`
}

// NodeError is the last error of a node, by its kind.
type NodeError struct {
	Reason     string    `json:"reason"`
	At         time.Time `json:"at"`
	AgoSeconds float64   `json:"ago_seconds"`
	Words      string    `json:"words,omitempty"`
}

// RulesInForce is the state of the rules in PostgreSQL.
type RulesInForce struct {
	State       string        `json:"state"`
	Hash        string        `json:"hash,omitempty"`
	Rules       int           `json:"rules"`
	Tenants     int           `json:"tenants,omitempty"`
	AgeSeconds  *float64      `json:"age_seconds,omitempty"`
	LastSuccess *time.Time    `json:"last_success,omitempty"`
	PollOnly    string        `json:"poll_only,omitempty"`
	Failures    int           `json:"failures"`
	LastError   string        `json:"last_error,omitempty"`
	Rejected    int           `json:"rejected"`
	Rejections  []RejectedRow `json:"rejections,omitempty"`
}

// The states of the rules.
const (
	RulesListening = "listening"
	RulesPolling   = "polling"
	RulesStopped   = "stopped"
	RulesUnknown   = "unknown"
	RulesStored    = "stored"
)

// RejectedRow is a row of the table that is no rule.
type RejectedRow struct {
	ID     string `json:"id"`
	Route  string `json:"route,omitempty"`
	Reason string `json:"reason"`
}

// Region is what a gateway gives of each limit, and how it knows.
type Region struct {
	Name       string  `json:"name"`
	Share      float64 `json:"share"`
	State      string  `json:"state"`
	OwnShares  int     `json:"own_shares,omitempty"`
	AgeSeconds float64 `json:"age_seconds,omitempty"`
	LastError  string  `json:"last_error,omitempty"`
	Version    int64   `json:"version,omitempty"`
}

// The states of a region's share.
const (
	ShareGiven    = "given"
	ShareMeasured = "measured"
	ShareLapsed   = "lapsed"
	ShareUnknown  = "unknown"
)

// Memory is how many buckets the gateway keeps something of, by store.
type Memory struct {
	MaxKeys int            `json:"max_keys"`
	Keys    map[string]int `json:"keys"`
}

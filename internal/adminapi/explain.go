package adminapi

// Explain is the answer to GET /rate_limit/explain.
type Explain struct {
	// Route is blank where every route is explained.
	Route     string    `json:"route,omitempty"`
	RulesHash string    `json:"rules_hash,omitempty"`
	Known     bool      `json:"rules_known"`
	Handlers  []Handler `json:"handlers"`
}

// Handler explains the route in those handlers that come to the same.
type Handler struct {
	// Route is that of this answer, where every route is explained.
	Route      string      `json:"route,omitempty"`
	Handlers   int         `json:"handlers"`
	Routes     []string    `json:"routes"`
	TenantFrom string      `json:"tenant_from"`
	Tenant     string      `json:"tenant"`
	Plan       string      `json:"plan,omitempty"`
	Blocked    bool        `json:"blocked,omitempty"`
	Note       string      `json:"note,omitempty"`
	Candidates []Candidate `json:"candidates"`
	Rule       *Numbers    `json:"rule,omitempty"`
	RuleFrom   string      `json:"rule_from,omitempty"`
	Charge     *Charge     `json:"charge,omitempty"`
	Ban        *BanTerms   `json:"ban,omitempty"`
	Share      float64     `json:"region_share,omitempty"`
	Bucket     *Bucket     `json:"bucket,omitempty"`
	Next       Next        `json:"next"`
}

// Candidate is a place where a rule is looked for, the first that counts.
type Candidate struct {
	From   string   `json:"from"`
	Tenant string   `json:"tenant,omitempty"`
	Route  string   `json:"route,omitempty"`
	Exists bool     `json:"exists"`
	Wins   bool     `json:"wins"`
	Rule   *Numbers `json:"rule,omitempty"`
}

// Bucket is what is known of a bucket, in Redis and in the gateway.
type Bucket struct {
	Keys       []string  `json:"redis_keys,omitempty"`
	Redis      *State    `json:"redis,omitempty"`
	Remembered []Refusal `json:"remembered,omitempty"`
	Prefetch   int64     `json:"prefetch,omitempty"`
	Local      *State    `json:"local"`
}

// State is the state of a bucket, or why it could not be asked for. A wait of -1 is
// for ever.
type State struct {
	Error        string `json:"error,omitempty"`
	Capacity     int64  `json:"capacity"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMs int64  `json:"retry_after_ms"`
	ResetAfterMs int64  `json:"reset_after_ms"`
	BannedMs     int64  `json:"banned_ms,omitempty"`
}

// Refusal is a refusal that the gateway remembers.
type Refusal struct {
	Key   string `json:"key"`
	Cost  int64  `json:"cost"`
	ForMs int64  `json:"for_ms"`
}

// Next is what the next request would get. RetryAfter is in seconds.
type Next struct {
	Outcome    string `json:"outcome"`
	Status     int    `json:"status,omitempty"`
	Route      string `json:"route,omitempty"`
	Cost       int64  `json:"cost,omitempty"`
	Remaining  *int64 `json:"remaining,omitempty"`
	RetryAfter *int64 `json:"retry_after,omitempty"`
	Source     string `json:"source,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// Charge is what a request costs in the end. By is in the words of the Caddyfile, such
// as `json usage.total_tokens`. It takes Reserved at its start, 0 where its request
// says how much, and costs Unread where its answer does not say it.
type Charge struct {
	By       string `json:"by"`
	Reserved int64  `json:"reserved,omitempty"`
	Unread   *int64 `json:"unread,omitempty"`
}

// BanTerms is for how long whoever empties the bucket is banned, and the status of a
// request that is.
type BanTerms struct {
	ForSeconds float64 `json:"for_seconds"`
	Status     int     `json:"status"`
}

// OutcomeUnknown is the outcome where the query does not name one bucket.
const OutcomeUnknown = "unknown"

// The notes: what the operator may not expect.
const (
	NoteGuest       = "a request without a tenant is a guest's: parameter ip names its bucket"
	NoteMadeUp      = "the tenant has no rule of its own, so its requests are a guest's: parameter ip names the bucket"
	NoteMadeUpGuest = "the tenant has no rule of its own, so its requests are a guest's"
	NoteHashed      = "the handler knows tenants by their SHA-256: tenant was hashed; parameter stored takes the hash"
	NoteZone        = "a zone's request may meet other zones of the handler, which are not looked at here"
)

package ratelimit

import (
	"time"

	"github.com/caddygate/ratelimit/regions"
)

// regionStatus is what a gateway gives of each limit, and how it knows.
type regionStatus struct {
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
	shareGiven    = "given"
	shareMeasured = "measured"
	shareLapsed   = "lapsed"
	shareUnknown  = "unknown"
)

// regionStatus returns nil where there are no regions.
func (a *App) regionStatus() *regionStatus {
	if a.Region == nil {
		return nil
	}
	if a.regions == nil {
		return &regionStatus{Name: a.Region.Name, Share: a.givenShare(), State: shareGiven}
	}
	known := a.regions.Status()
	status := &regionStatus{
		Name: a.Region.Name, Share: known.Share, State: shareMeasured, OwnShares: known.Limits,
		AgeSeconds: known.Age.Round(time.Millisecond).Seconds(), LastError: known.LastError, Version: known.Version,
	}
	switch {
	case known.Version == 0:
		status.State = shareUnknown
	case known.Lapsed:
		status.State = shareLapsed
	}
	return status
}

// givenShare returns the share that the configuration names, 1 where it names none.
func (a *App) givenShare() float64 {
	if a.share == 0 {
		return 1
	}
	return a.share
}

// The events of the region.
const (
	sharesChangedEvent   = "rate_limit_shares_changed"
	sharesFailedEvent    = "rate_limit_shares_failed"
	sharesRecoveredEvent = "rate_limit_shares_recovered"
	sharesLapsedEvent    = "rate_limit_shares_lapsed"
	sharesUnknownEvent   = "rate_limit_shares_unknown"
	sharesMovedEvent     = "rate_limit_shares_moved"
	sharesStuckEvent     = "rate_limit_shares_stuck"
)

// tellRegion tells of what happened to the shares.
func (a *App) tellRegion(event regions.Event) {
	data := map[string]any{"region": a.Region.Name, "share": event.Share}
	if event.Err != nil {
		data["error"] = event.Err.Error()
	}
	if name := regionEventName(event.Kind); name != "" {
		a.tellChange(name, data)
	}
}

func regionEventName(kind regions.EventKind) string {
	switch kind {
	case regions.EventShares:
		return sharesChangedEvent
	case regions.EventFailed:
		return sharesFailedEvent
	case regions.EventRecovered:
		return sharesRecoveredEvent
	case regions.EventLapsed:
		return sharesLapsedEvent
	case regions.EventUnknown, regions.EventStored:
		return sharesUnknownEvent
	case regions.EventMoved:
		return sharesMovedEvent
	case regions.EventJobFailed:
		return sharesStuckEvent
	default:
		return ""
	}
}

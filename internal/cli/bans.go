package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// mergeBans lists the bans that any of the gateways has seen, each once. Of the times
// that they tell, the longest is right: a ban that was ended and begun anew is known to
// some only.
func mergeBans(bodies [][]byte) ([]byte, error) {
	type place struct{ key, route string }
	longest := map[place]adminapi.Ban{}
	sum := adminapi.Bans{Bans: []adminapi.Ban{}}
	for _, body := range bodies {
		var bans adminapi.Bans
		if err := json.Unmarshal(body, &bans); err != nil {
			return nil, fmt.Errorf("reading an answer of the admin API: %w", err)
		}
		sum.Seen = max(sum.Seen, bans.Seen)
		for _, b := range bans.Bans {
			if at := (place{b.Key, b.Route}); b.Seconds > longest[at].Seconds {
				longest[at] = b
			}
		}
	}
	for _, b := range longest {
		sum.Bans = append(sum.Bans, b)
	}
	slices.SortFunc(sum.Bans, func(a, b adminapi.Ban) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Key, b.Key))
	})
	sum.Seen = max(sum.Seen, len(sum.Bans))
	body, err := json.MarshalIndent(&sum, "", "  ")
	return append(body, '\n'), err
}

// printBans shows the bans that hold.
func printBans(t *tables, a *adminapi.Bans) {
	rows := under(len(a.Bans), "LEFT", "TENANT", "ROUTE")
	for i := range a.Bans {
		b := &a.Bans[i]
		rows = append(rows, []string{banLeft(b.Seconds), b.Tenant, b.Route})
	}
	t.table(rows...)
	t.line("%d of %d bans", len(a.Bans), a.Seen)
}

// banLeft is how long a ban still holds, and a dash where there is none.
func banLeft(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return span(math.Ceil(seconds))
}

package ratelimit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/limit"
)

// answerBans lists the bans that this gateway has seen and that hold.
func answerBans(_ context.Context, app *App, q *adminapi.Query) (any, error) {
	most, err := q.Number("limit", adminapi.DefaultBans, adminapi.MaxBans)
	if err != nil {
		return nil, badQuery(err)
	}
	now := time.Now()
	list := []adminapi.Ban{}
	app.bans.list(now, func(key limit.Key, known ban) {
		list = append(list, adminapi.Ban{
			Tenant: known.tenant, Stored: adminapi.StoredName(known.tenant, key.Tenant), Key: key.Tenant,
			Route: known.zone, Seconds: seconds(known.until.Sub(now)),
		})
	})
	slices.SortFunc(list, func(a, b adminapi.Ban) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Key, b.Key))
	})
	return &adminapi.Bans{Seen: len(list), Bans: list[:min(len(list), int(most))]}, nil
}

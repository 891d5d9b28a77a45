package ratelimit

import "github.com/caddygate/ratelimit/limit"

type limitKey = limit.Key

// routeKey is the bucket of a tenant on a route.
func routeKey(tenant, route string) limit.Key { return limit.Key{Tenant: tenant, Route: route} }

// lookAt looks at a bucket.
func lookAt(key limit.Key, rule limit.Rule) limit.Request {
	return limit.Request{Buckets: []limit.Bucket{{Key: key, Rule: rule}}, Cost: 1}
}

package front

import (
	"context"
	"errors"

	"github.com/caddygate/ratelimit/limit"
)

// errNotAll is the error of an answer that does not speak of every bucket.
var errNotAll = errors.New("the answer is about another number of buckets")

// rest is those buckets of a request that memory has no answer for.
type rest struct {
	buckets []limit.Bucket
	at      []int  // their numbers in the request
	known   []bool // something is known of the bucket, which the answer may prove wrong
}

// takeApart decides about each bucket by itself. Nobody waits for another's answer
// here: Redis is asked about some of the buckets anyway, and one more costs little.
func (m *Memory) takeApart(ctx context.Context, req *limit.Request) (limit.Decision, error) {
	all := limit.NewApart(len(req.Buckets))
	unknown := m.recallEach(req, &all)
	if len(unknown.at) == 0 {
		return all, nil
	}
	asked := *req
	asked.Buckets = unknown.buckets
	sent := m.Store.elapsed(m.Clock)
	decision, err := m.Next.Take(ctx, asked)
	if err != nil {
		return limit.Decision{}, err
	}
	if len(decision.Rest) != len(asked.Buckets)-1 {
		return limit.Decision{}, errNotAll
	}
	for k, i := range unknown.at {
		part := decision.Part(k)
		all.Put(i, part)
		if unknown.known[k] || part.First.RetryAfter != 0 {
			one := asked.Only(k)
			m.learn(&one, &part, sent)
		}
	}
	return all, nil
}

// recallEach puts what is known to refuse into a decision, and returns the rest. A
// look is never answered from memory.
func (m *Memory) recallEach(req *limit.Request, all *limit.Decision) rest {
	var unknown rest
	arrived := m.Store.elapsed(m.Clock)
	for i := range req.Buckets {
		one := req.Only(i)
		found := m.recall(&one, arrived, false)
		if found.refuses && req.Count > 0 {
			all.Put(i, found.decision)
			continue
		}
		unknown.buckets = append(unknown.buckets, req.Buckets[i])
		unknown.at = append(unknown.at, i)
		unknown.known = append(unknown.known, found.known)
	}
	return unknown
}

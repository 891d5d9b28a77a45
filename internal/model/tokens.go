package model

import (
	"math/big"

	"github.com/caddygate/ratelimit/limit"
)

// tokens is a token bucket: what it held at a time in ms. It gains refill tokens
// a second up to the capacity; no time passes for it while the clock is behind.
type tokens struct {
	held *big.Float // in parts of a token; nil: it is full
	at   int64
}

const (
	// part is how many parts a token has here, so that a ms' refill and the slack
	// are products and not quotients.
	part = 1_000_000_000_000
	// slackParts are the 1e-9 tokens that a sum of fractions may miss.
	slackParts = part / 1_000_000_000
)

// seen is the bucket as it counts now, with stamps too far ahead set to now.
func (t *tokens) seen(rule limit.Rule, now int64) tokens {
	ms := floor(now, 1000)
	if t.held == nil {
		return tokens{parts(rule.Capacity), ms}
	}
	seen := *t
	if seen.at > ms+ahead/1000 {
		seen.at = ms
	}
	if capacity := parts(rule.Capacity); seen.held.Cmp(capacity) > 0 {
		seen.held = capacity
	}
	if debt := parts(-rule.Capacity); seen.held.Cmp(debt) < 0 {
		seen.held = debt
	}
	return seen
}

// balance is what the bucket holds at a time in ms.
func (t tokens) balance(rule limit.Rule, ms int64) *big.Float {
	balance := number(max(0, ms-t.at))
	balance.Mul(balance, perMilli(rule))
	balance.Add(balance, t.held)
	if capacity := parts(rule.Capacity); balance.Cmp(capacity) > 0 {
		return capacity
	}
	return balance
}

func (t *tokens) room(rule limit.Rule, now int64) int64 {
	balance := t.seen(rule, now).balance(rule, floor(now, 1000))
	balance.Add(balance, number(slackParts))
	if balance.Sign() < 0 {
		return -1 // a debt
	}
	whole, _ := balance.Quo(balance, number(part)).Int64()
	return min(rule.Capacity, whole)
}

func (t *tokens) take(n int64, rule limit.Rule, now int64) {
	seen, ms := t.seen(rule, now), floor(now, 1000)
	left := seen.balance(rule, ms)
	left.Sub(left, parts(n))
	if left.Sign() < 0 {
		left = number(0)
	}
	*t = tokens{left, max(seen.at, ms)}
}

func (t *tokens) repair(rule limit.Rule, now int64) {
	if t.held != nil && t.at > floor(now, 1000)+ahead/1000 {
		*t = t.seen(rule, now)
	}
}

// wait is the time until all that is missing is there, in whole ms rounded up;
// a millionth of a ms more is none, where cost is then there but for 1e-9.
func (t *tokens) wait(cost int64, rule limit.Rule, now int64) int64 {
	seen, ms := t.seen(rule, now), floor(now, 1000)
	enough := parts(cost)
	enough.Sub(enough, number(slackParts))
	there := func(wait int64) bool { return seen.balance(rule, ms+wait).Cmp(enough) >= 0 }
	if there(0) {
		return 0
	}
	exact := parts(cost)
	exact.Sub(exact, seen.held)
	exact.Quo(exact, perMilli(rule))
	exact.Add(exact, number(seen.at-ms))
	exact.Sub(exact, big.NewFloat(1e-6))
	wait, accuracy := exact.Int64()
	if accuracy == big.Below {
		wait++
	}
	if !there(wait) {
		wait++
	}
	return wait
}

func (t *tokens) reset(rule limit.Rule, now int64) int64 {
	return t.wait(rule.Capacity, rule, now)
}

// number is a float that is wide enough for exact sums.
func number(n int64) *big.Float { return new(big.Float).SetPrec(256).SetInt64(n) }

// parts is so many tokens.
func parts(n int64) *big.Float { return new(big.Float).SetPrec(256).Mul(number(n), number(part)) }

// perMilli is the refill of a ms, in parts.
func perMilli(rule limit.Rule) *big.Float {
	return new(big.Float).SetPrec(256).Mul(number(part/1000), big.NewFloat(rule.Refill))
}

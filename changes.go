package ratelimit

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
)

// The events of changes of state, as Caddy's app `events` and the metric
// state_changes_total name them.
const (
	breakerOpenedEvent  = "rate_limit_breaker_opened"
	breakerClosedEvent  = "rate_limit_breaker_closed"
	redisUnreachedEvent = "rate_limit_redis_unreached"
	redisReachedEvent   = "rate_limit_redis_reached"
	redisUnfitEvent     = "rate_limit_redis_unfit"
	redisMastersEvent   = "rate_limit_redis_masters_changed"

	rulesLoadedEvent        = "rate_limit_rules_loaded"
	rulesFailedEvent        = "rate_limit_rules_failed"
	rulesRecoveredEvent     = "rate_limit_rules_recovered"
	rulesStaleEvent         = "rate_limit_rules_stale"
	rulesStoredUsedEvent    = "rate_limit_rules_stored_used"
	rulesStoreFailedEvent   = "rate_limit_rules_store_failed"
	rulesListeningEvent     = "rate_limit_rules_listening"
	rulesListeningLostEvent = "rate_limit_rules_listening_lost"
	rulesPollOnlyEvent      = "rate_limit_rules_poll_only"
)

// stateEvents are all of them.
func stateEvents() []string {
	return []string{
		breakerOpenedEvent, breakerClosedEvent, redisUnreachedEvent, redisReachedEvent, redisUnfitEvent, redisMastersEvent,
		rulesLoadedEvent, rulesFailedEvent, rulesRecoveredEvent, rulesStaleEvent, rulesStoredUsedEvent,
		rulesStoreFailedEvent, rulesListeningEvent, rulesListeningLostEvent, rulesPollOnlyEvent,
		sharesChangedEvent, sharesFailedEvent, sharesRecoveredEvent, sharesLapsedEvent, sharesUnknownEvent, sharesMovedEvent, sharesStuckEvent,
	}
}

// tellChange counts a change of state and offers its event to subscribers.
func (a *App) tellChange(name string, data map[string]any) {
	countStateChange(name)
	a.events.tell(happening{name: name, origin: a.origin, data: data})
}

// tellRedis tells of what happened to a Redis.
func (a *App) tellRedis(event redisbucket.Event) {
	data := map[string]any{"node": event.Address}
	name := redisUnfitEvent
	switch event.Kind {
	case redisbucket.BreakerOpened:
		name, data["reason"] = breakerOpenedEvent, event.Detail
	case redisbucket.BreakerClosed:
		name = breakerClosedEvent
	case redisbucket.Unreached:
		name, data["reason"] = redisUnreachedEvent, event.Detail
	case redisbucket.Reached:
		name = redisReachedEvent
	case redisbucket.MastersChanged:
		name, data["masters"] = redisMastersEvent, event.Detail
	default:
		data["problem"], data["detail"] = event.Kind.String(), event.Detail
	}
	a.tellChange(name, data)
}

// tellRules tells of what happened to the rules.
func (a *App) tellRules(event rulecache.Event) {
	data := map[string]any{"rules": event.Rules, "rejected": event.Rejected}
	if event.Err != nil {
		data["error"] = event.Err.Error()
	}
	if event.Kind == rulecache.EventLoaded {
		data["took"], data["hash"] = event.Took, a.source.Snapshot().Hash()
	}
	if name := rulesEventName(event.Kind); name != "" {
		a.tellChange(name, data)
	}
}

func rulesEventName(kind rulecache.EventKind) string {
	switch kind {
	case rulecache.EventLoaded:
		return rulesLoadedEvent
	case rulecache.EventFailed:
		return rulesFailedEvent
	case rulecache.EventRecovered:
		return rulesRecoveredEvent
	case rulecache.EventStoredUsed:
		return rulesStoredUsedEvent
	case rulecache.EventStoreFailed, rulecache.EventStoredUnusable:
		return rulesStoreFailedEvent
	case rulecache.EventListening:
		return rulesListeningEvent
	case rulecache.EventListenLost:
		return rulesListeningLostEvent
	case rulecache.EventPollOnly:
		return rulesPollOnlyEvent
	default:
		return ""
	}
}

// staleAfter is how many refresh intervals may pass without PostgreSQL having
// confirmed the rules before they are called stale.
const staleAfter = 3

// staleness notices that rules have not been confirmed for too long, once, until
// they are confirmed again.
type staleness struct {
	age  func() time.Duration // of the rules
	most time.Duration
	tell func(age time.Duration)
	told bool
}

// look is called now and then.
func (s *staleness) look() {
	age := s.age()
	stale := age > s.most
	if stale && !s.told {
		s.tell(age)
	}
	s.told = stale
}

// start looks, until stop is called.
func (s *staleness) start() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(max(s.most/10, time.Second/4))
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.look()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// watchRules tells when the rules have become stale, until stop is called.
func (a *App) watchRules() (stop func()) {
	s := staleness{
		age:  func() time.Duration { return a.source.Status().Age },
		most: staleAfter * cmp.Or(time.Duration(a.Rules.Refresh), rulecache.DefaultRefresh),
		tell: func(age time.Duration) {
			a.logger.Warn("PostgreSQL: rules are stale", zap.Duration("age", age))
			a.tellChange(rulesStaleEvent, map[string]any{"age": age})
		},
	}
	return s.start()
}

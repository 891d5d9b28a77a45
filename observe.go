package ratelimit

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
)

// observeRules logs and tells what happens to the rules. Each change of state
// comes once.
func (a *App) observeRules(event rulecache.Event) {
	a.tellRules(event)
	fields := []zap.Field{
		zap.Int("rules", event.Rules),
		zap.Int("rejected", event.Rejected),
	}
	if event.Err != nil {
		fields = append(fields, zap.Error(event.Err))
	}
	if event.Kind == rulecache.EventLoaded {
		fields = append(fields, zap.Duration("took", event.Took))
	}
	a.logger.Log(rulesLevel(event), "PostgreSQL: "+event.Kind.String(), fields...)
	if event.Kind == rulecache.EventLoaded {
		a.logRejections()
	}
}

// loggedRejections is how many rejected rows are logged one by one at each load.
const loggedRejections = 5

// logRejections logs the first rows that make no rule. It names their ids and not
// their tenants, which may be secrets.
func (a *App) logRejections() {
	_, rejections := a.source.Snapshot().Rejected()
	for _, rejection := range rejections[:min(len(rejections), loggedRejections)] {
		a.logger.Warn("PostgreSQL: a row is no rule",
			zap.String("id", rejection.ID), zap.String("route", rejection.Route), zap.String("reason", rejection.Reason))
	}
}

func rulesLevel(event rulecache.Event) zapcore.Level {
	switch event.Kind {
	case rulecache.EventFailed, rulecache.EventStoreFailed, rulecache.EventStoredUnusable:
		return zapcore.ErrorLevel
	case rulecache.EventListenLost, rulecache.EventPollOnly, rulecache.EventStoredUsed:
		return zapcore.WarnLevel
	case rulecache.EventLoaded:
		if event.Rejected > 0 {
			return zapcore.WarnLevel
		}
	default:
	}
	return zapcore.InfoLevel
}

// observeRedis logs and tells what happens to the Redis that is talked to.
func (a *App) observeRedis(event redisbucket.Event) {
	a.tellRedis(event)
	level := zapcore.WarnLevel
	switch event.Kind {
	case redisbucket.BreakerClosed, redisbucket.Reached, redisbucket.MastersChanged:
		level = zapcore.InfoLevel
	case redisbucket.VersionTooOld, redisbucket.ClusterNode, redisbucket.NoCluster,
		redisbucket.SentinelServer, redisbucket.NoSentinel, redisbucket.UnknownMaster:
		level = zapcore.ErrorLevel
	default:
	}
	fields := []zap.Field{zap.String("node", event.Address), zap.String("detail", event.Detail)}
	if event.Words != "" {
		fields = append(fields, zap.String("words", event.Words))
	}
	a.logger.Log(level, event.Kind.String(), fields...)
}

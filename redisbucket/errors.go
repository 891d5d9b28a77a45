package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// What goes wrong here rather than in Redis or on the way.
var (
	errNotStarted = errors.New("the connection to Redis has not been started")
	errClosed     = errors.New("the connection to Redis is closed")
	errWait       = errors.New("waiting to be sent to Redis: the time is over")
	errFull       = fmt.Errorf("%w: too many wait already", errWait)
	errConnection = errors.New("no connection to Redis")
	errOverdue    = fmt.Errorf("%w: connecting takes too long", errConnection)
	errOpen       = gobreaker.ErrOpenState
	errReply      = errors.New("reading the reply of Redis")
	errVersion    = errors.New("this Redis is too old: version 6.2 or Valkey is needed")

	// Who is to be asked is not known, or is another one by now.
	errNotFound      = errors.New("nobody has said yet which Redis serves")
	errRetired       = fmt.Errorf("%w: this one serves no more", errConnection)
	errNoMaster      = errors.New("no master of Redis answers")
	errReplica       = errors.New("this Redis is a replica")
	errNoSlots       = errors.New("the Redis Cluster says that nobody serves any slot")
	errUnserved      = errors.New("nobody in the Redis Cluster serves this slot")
	errPricedApart   = errors.New("buckets with costs or bans of their own are in several slots")
	errUnknownMaster = errors.New("the sentinels know no master of this name")
	errNoCluster     = errors.New("this Redis is no cluster")
	errSentinel      = errors.New("this is a sentinel, and no Redis that keeps buckets")
	errNoSentinel    = errors.New("this Redis is no sentinel")

	// errEarly marks a call that a caller's own deadline ended before the
	// request's, which says nothing about Redis.
	errEarly = fmt.Errorf("asking for less time than the request's: %w", context.DeadlineExceeded)
)

// Reason returns one word for why nobody in Redis decided, for a metric's label:
// timeout, canceled, breaker_open, wait (its turn did not come in time),
// connection, oom, readonly, loading, misconf, noauth, clusterdown, masterdown,
// noperm, noreplicas, busy, moved, tryagain, wrongtype, noscript, reply (not the
// shape it must have), version, replica, unknown_master, no_cluster, sentinel,
// no_sentinel, closed, not_started, or other. It is empty for no error. The set is closed: no word comes from the server.
func Reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled), errors.Is(err, errEarly):
		return "canceled"
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return "breaker_open"
	case errors.Is(err, errWait):
		return "wait"
	case errors.Is(err, errVersion):
		return "version"
	case errors.Is(err, errReplica):
		return "replica"
	case errors.Is(err, errUnknownMaster):
		return "unknown_master"
	case errors.Is(err, errNoCluster):
		return "no_cluster"
	case errors.Is(err, errSentinel):
		return "sentinel"
	case errors.Is(err, errNoSentinel):
		return "no_sentinel"
	case errors.Is(err, errNoSlots), errors.Is(err, errUnserved):
		return "clusterdown"
	case errors.Is(err, errNotStarted):
		return "not_started"
	case errors.Is(err, errClosed):
		return "closed"
	case errors.Is(err, errReply), errors.Is(err, redis.Nil):
		return "reply"
	}
	if reason := replyReason(err); reason != "" {
		return reason
	}
	return transportReason(err)
}

// replyReason classifies an error that Redis replied, "" where it is none.
func replyReason(err error) string {
	if !fromRedis(err) {
		return ""
	}
	switch class := replyClass(err); class {
	case "OOM", "READONLY", "LOADING", "MISCONF", "NOAUTH", "CLUSTERDOWN", "MASTERDOWN", "NOPERM",
		"NOREPLICAS", "BUSY", "MOVED", "TRYAGAIN", "WRONGTYPE", "NOSCRIPT":
		return strings.ToLower(class)
	case "WRONGPASS":
		return "noauth"
	case "ASK":
		return "moved"
	default:
		return unclassed(err)
	}
}

// unclassed is the reason where a reply has no class of its own. A script whose
// user may not run one of its commands is told so in words alone.
func unclassed(err error) string {
	for _, words := range []string{"The user executing the script can't", "has no permissions to"} { // Redis 7, Redis 8 and Valkey
		if strings.Contains(err.Error(), words) {
			return "noperm"
		}
	}
	return "other"
}

func transportReason(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, errConnection), errors.Is(err, errNotFound), errors.Is(err, errNoMaster):
		return "connection"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, redis.ErrClosed):
		return "connection"
	}
	return "other"
}

// replyClass returns the first word of an error that Redis replied, "" where
// err is none. Redis 6.2 wraps what a script's command replied: "ERR Error
// running script (call to f_…): @user_script:12: -OOM command not allowed".
func replyClass(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	text := reply.Error()
	if rest, found := strings.CutPrefix(text, "ERR Error running script (call to "); found {
		if _, inner, found := strings.Cut(rest, "): "); found {
			text = inner
		}
	}
	for {
		rest, found := cutScriptLine(text)
		if !found {
			break
		}
		text = rest
	}
	text = strings.TrimPrefix(text, "-")
	class, _, _ := strings.Cut(text, " ")
	return class
}

// cutScriptLine cuts a leading "@user_script:12: " or "@user_script: 12: ".
func cutScriptLine(text string) (rest string, found bool) {
	rest, found = strings.CutPrefix(text, "@user_script:")
	if !found {
		return text, false
	}
	rest = strings.TrimLeft(rest, " 0123456789")
	return strings.CutPrefix(rest, ": ")
}

// fromRedis reports whether err is a reply, so that its connection is in order.
func fromRedis(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// unknownCommand reports whether a server replied that it has no such command.
func unknownCommand(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR unknown command")
}

// isSetup reports whether err says that the configuration does not fit what is
// talked to, so that waiting does not help.
func isSetup(err error) bool {
	return errors.Is(err, errUnknownMaster) || errors.Is(err, errNoCluster) || errors.Is(err, errNoSentinel)
}

// lostKind is the event that tells why nobody knows who serves.
func lostKind(err error) EventKind {
	switch {
	case errors.Is(err, errUnknownMaster):
		return UnknownMaster
	case errors.Is(err, errNoCluster):
		return NoCluster
	case errors.Is(err, errNoSentinel):
		return NoSentinel
	default:
		return Unreached
	}
}

// mostWords is how many bytes of an error that Redis replied are told.
const mostWords = 200

// quoted is a text that Redis quotes, but for the name of a command.
var quoted = regexp.MustCompile(`'[^']*'( command)?|"[^"]*"|` + "`[^`]*`")

// words is what Redis itself said of an error, blank where it said nothing: one
// line, without what it quotes of arguments, which may be keys and passwords.
func words(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return ""
	}
	text, _, _ := strings.Cut(reply.Error(), ", with args beginning with")
	text = quoted.ReplaceAllStringFunc(text, func(quote string) string {
		if strings.HasSuffix(quote, " command") {
			return quote
		}
		return "'…'"
	})
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > mostWords {
		text = strings.ToValidUTF8(text[:mostWords], "")
	}
	return strings.TrimSpace(text)
}

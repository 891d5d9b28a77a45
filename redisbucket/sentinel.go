package redisbucket

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// switchChannel is where a sentinel says that another server is the master.
	switchChannel = "+switch-master"
	// listenEvery is how often a sentinel that says nothing is asked whether it lives.
	listenEvery = 5 * time.Second
	// relistenAfter is the wait before a sentinel that was lost is listened to again.
	relistenAfter = time.Second
)

// sentinels returns where the sentinels are. They have a user of their own.
func (c *Client) sentinels() []address {
	list := slices.Clone(c.seeds)
	for i := range list {
		list[i].user, list[i].password, list[i].db = c.options.SentinelUser, c.options.SentinelPassword, 0
	}
	return list
}

// findBySentinels asks all sentinels for the master. The one that most of them
// name and that calls itself a master counts: while a fail-over goes on they do
// not agree yet, and one that was cut off names an old one.
func (c *Client) findBySentinels(ctx context.Context) ([]master, error) {
	votes := make(map[string]int)
	tried := make(map[string]bool)
	var found string
	var errs []error
	inquiry[string]{from: c.sentinels(), ask: c.askMaster, enough: func(a said[string]) bool {
		if a.err != nil {
			errs = append(errs, a.err)
			return false
		}
		votes[a.value]++
		if 2*votes[a.value] > len(c.seeds) && !tried[a.value] {
			tried[a.value] = true
			found = c.leading(ctx, a.value)
		}
		return found != ""
	}}.make(ctx)
	for found == "" && len(tried) < len(votes) {
		next := mostVoted(votes, tried)
		tried[next] = true
		found = c.leading(ctx, next)
	}
	switch {
	case found == "" && c.view.Load() == nil && len(votes) > 0:
		found = mostVoted(votes, nil) // it is down, and is connected to as soon as it is not
	case found == "" && len(votes) > 0:
		return nil, errNoMaster
	case found == "" && len(errs) == 0:
		return nil, errNotFound
	case found == "":
		return nil, mostTelling(errs)
	}
	return []master{{host: found}}, nil
}

// mostVoted returns the host with the most votes of those that were not tried.
func mostVoted(votes map[string]int, tried map[string]bool) (best string) {
	for host, n := range votes {
		if !tried[host] && (best == "" || n > votes[best] || n == votes[best] && host < best) {
			best = host
		}
	}
	return best
}

// leading returns host, or "" where it does not answer as a master. One that is
// used already and works is not asked: a replica would have refused writes.
func (c *Client) leading(ctx context.Context, host string) string {
	if v := c.view.Load(); v != nil && v.nodes[0].address.host == host && !v.nodes[0].troubled() {
		return host
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.DialTimeout)
	defer cancel()
	reply, err := c.inquire(ctx, c.seeds[0].at(host), "hello", "2")
	if err != nil || greetingOf(reply).replica() {
		return ""
	}
	return host
}

// askMaster asks one sentinel for the address of the master.
func (c *Client) askMaster(ctx context.Context, sentinel address) (string, error) {
	reply, err := c.inquire(ctx, sentinel, "sentinel", "get-master-addr-by-name", c.options.Master)
	switch {
	case err == redis.Nil: //nolint:errorlint // it is never wrapped here
		return "", errUnknownMaster
	case unknownCommand(err):
		return "", fmt.Errorf("%w: %w", errNoSentinel, err)
	case err != nil:
		return "", err
	}
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return "", fmt.Errorf("%w: a sentinel's address has not two parts", errReply)
	}
	host, ok1 := fields[0].(string)
	port, ok2 := fields[1].(string)
	if !ok1 || !ok2 || !isPort(port) {
		return "", fmt.Errorf("%w: a sentinel's address is no host and port", errReply)
	}
	if host == "" {
		return hostNear(sentinel.host, host, port), nil
	}
	return net.JoinHostPort(host, port), nil
}

// listen waits for a sentinel to say that the master is another one, and has the
// sentinels asked then.
func (l *life) listen(sentinel address) {
	for {
		_ = l.client.visit(l.context, sentinel, l.subscribe) // it is asked again whatever it was
		if !l.sleep(relistenAfter) {
			return
		}
	}
}

// subscribe listens over one connection until it fails.
func (l *life) subscribe(client *redis.Client) error {
	subscription := client.Subscribe(l.context, switchChannel)
	defer subscription.Close()
	silent := false
	for {
		message, err := subscription.ReceiveTimeout(l.context, listenEvery)
		switch {
		case err == nil:
			silent = false
			l.heard(message)
		case l.context.Err() == nil && Reason(err) == "timeout" && !silent:
			silent = true
			if err := subscription.Ping(l.context); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// heard has the sentinels asked where a message is about our master, and after
// subscribing, because what was said before was missed.
func (l *life) heard(message any) {
	switch m := message.(type) {
	case *redis.Message:
		if name, _, _ := strings.Cut(m.Payload, " "); name != l.client.options.Master {
			return
		}
	case *redis.Subscription:
	default:
		return
	}
	l.client.nudge()
}

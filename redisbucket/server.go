package redisbucket

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The oldest Redis that is used.
const (
	minMajor = 6
	minMinor = 2
)

// greet proves a new connection and looks at the server behind it. HELLO needs
// no right, and tells the version; a server without it is asked otherwise.
func (n *node) greet(ctx context.Context, conn *redis.Conn) error {
	reply, err := conn.Do(ctx, "hello", "2").Result()
	if err != nil && !fromRedis(err) {
		return err
	}
	if class := replyClass(err); class == "NOAUTH" || class == "WRONGPASS" {
		return err
	}
	server := greetingOf(reply)
	if server.version == "" {
		text, err := infoText(ctx, conn, "server")
		if err != nil {
			return err
		}
		server.readInfo(text)
	}
	if server.tooOld() {
		if !n.versionTold.Swap(true) {
			n.tell(Event{Kind: VersionTooOld, Detail: server.version})
		}
		return fmt.Errorf("%w, it is %s", errVersion, server.version)
	}
	n.versionTold.Store(false)
	if server.mode == "sentinel" {
		if !n.client.sentinelTold.Swap(true) {
			n.tell(Event{Kind: SentinelServer})
		}
		return errSentinel
	}
	n.client.sentinelTold.Store(false)
	if n.client.options.mode() == ModeSentinel && server.replica() {
		return errReplica // it was the master, or will be one
	}
	return n.checkPolicy(ctx, conn)
}

// checkPolicy warns once of a server that may evict buckets. Not to be allowed
// to ask is no error.
func (n *node) checkPolicy(ctx context.Context, conn *redis.Conn) error {
	if n.policy.Load() {
		return nil
	}
	text, err := infoText(ctx, conn, "memory")
	policy := infoField(text, "maxmemory_policy")
	if err != nil || n.policy.Swap(true) {
		return err
	}
	if policy != "" && policy != "noeviction" {
		n.tell(Event{Kind: EvictingPolicy, Detail: policy})
	}
	return nil
}

// greeting is what a server says of itself in its reply to HELLO.
type greeting struct{ server, version, mode, role string }

// greetingOf reads the reply to HELLO; what it does not say is empty.
func greetingOf(reply any) (g greeting) {
	fields, _ := reply.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		value, _ := fields[i+1].(string)
		switch fields[i] {
		case "server":
			g.server = value
		case "version":
			g.version = value
		case "mode":
			g.mode = value
		case "role":
			g.role = value
		}
	}
	return g
}

// replica reports whether the server says that it is no master.
func (g greeting) replica() bool { return g.role == "replica" || g.role == "slave" }

// tooOld reports whether the server is a Redis before 6.2. Valkey and others count
// in their own way, and what cannot be read is not too old.
func (g greeting) tooOld() bool {
	return (g.server == "" || g.server == "redis") && tooOld(g.version)
}

// readInfo reads what a server says of itself in INFO. Valkey has a name and a
// version of its own beside those of the Redis that it stands for.
func (g *greeting) readInfo(text string) {
	g.server, g.version = infoField(text, "server_name"), infoField(text, "redis_version")
	if own := infoField(text, "valkey_version"); own != "" {
		g.server, g.version = "valkey", own
	}
}

// infoText returns a section of INFO, "" where the server does not say. Only an
// error of the connection is one.
func infoText(ctx context.Context, conn *redis.Conn, section string) (string, error) {
	text, err := conn.Info(ctx, section).Result()
	if err != nil && !fromRedis(err) {
		return "", err
	}
	return text, nil
}

// infoField returns a field of a section of INFO, "" where it is not there.
func infoField(text, name string) string {
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// tooOld reports whether version is that of a Redis before 6.2. What cannot be
// read is not too old.
func tooOld(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return major < minMajor || major == minMajor && minor < minMinor
}

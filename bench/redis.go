package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a private Redis that keeps nothing on disk.
type redisServer struct {
	*process
	addr   string
	client *redis.Client
}

// startRedis starts it with its files in dir.
func startRedis(ctx context.Context, addr, dir string) (*redisServer, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("finding redis-server: install it with `apt-get install redis-server`, or run `make bench`, which does: %w", err)
	}
	host, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(binary, "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no")
	p, err := launch(cmd, "redis-server", dir+"/redis.log")
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, DialTimeout: time.Second})
	return &redisServer{p, addr, client}, p.await(ctx, addr)
}

// calls returns how often Redis has run the command, 0 for none.
func (r *redisServer) calls(ctx context.Context, command string) (int64, error) {
	if command == "" {
		return 0, nil
	}
	text, err := r.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("reading commandstats: %w", err)
	}
	return callsOf(text, command)
}

// callsOf reads the number of calls from commandstats.
func callsOf(commandstats, command string) (int64, error) {
	_, rest, found := strings.Cut(commandstats, "cmdstat_"+command+":calls=")
	if !found {
		return 0, nil // not called yet
	}
	digits, _, _ := strings.Cut(rest, ",")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading commandstats of %s: %w", command, err)
	}
	return n, nil
}

// end ends the server and what was connected to it.
func (r *redisServer) end() {
	_ = r.client.Close()
	r.process.end()
}

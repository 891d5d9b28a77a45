package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
)

// What is measured of an entry with two buckets, among the figures of the parts.
const (
	secondBucket = "SecondBucket"
	ofOne        = "of-one"
)

// measureSecondBucket compares what a second token bucket in an entry costs Redis
// with an entry of one alone: the same commands again and again, in turns, by the
// time that Redis itself counts.
func measureSecondBucket(rounds int) (figures, error) {
	server, err := startRedis()
	if err != nil {
		return nil, err
	}
	defer server.close()
	commands, err := entriesOf(server, 1, 2)
	if err != nil {
		return nil, fmt.Errorf("measuring a second bucket in an entry: %w", err)
	}
	ratios := make([]float64, 0, rounds)
	for range rounds {
		var micros [2]float64
		for i, command := range commands {
			if micros[i], err = server.microsPerCall(command); err != nil {
				return nil, fmt.Errorf("measuring a second bucket in an entry: %w", err)
			}
		}
		ratios = append(ratios, (micros[1]-micros[0])/micros[0])
	}
	slices.Sort(ratios)
	return figures{secondBucket: {ofOne: ratios[len(ratios)/2]}}, nil
}

// entriesOf are the commands by which requests with so many buckets each are
// decided, as Redis got them.
func entriesOf(server *redisServer, buckets ...int) ([][]any, error) {
	client, err := redisbucket.NewClient(redisbucket.Options{URLs: []string{"redis://" + server.addr + "/0"}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Destruct() }()
	defer client.Start(nil)()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client.Warm(ctx)
	limiter := redisbucket.New(client, "")
	commands := make([][]any, 0, len(buckets))
	for _, count := range buckets {
		command, err := server.commandOf(ctx, func() error {
			request := limit.Request{Cost: 1, Count: 1, Deadline: time.Now().Add(time.Second)}
			for i := range count {
				key := limit.Key{Tenant: "tenant", Route: route + strconv.Itoa(i)}
				request.Buckets = append(request.Buckets, limit.Bucket{Key: key, Rule: tenantRule(1_000_000, modes[0])})
			}
			_, err := limiter.Take(ctx, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		commands = append(commands, command)
	}
	return commands, nil
}

// errCut is what the slow log does with what is long.
var errCut = errors.New("the slow log has cut the command off: it is too long to be measured this way")

// commandOf returns the script's call that a decision makes, out of the slow log.
func (s *redisServer) commandOf(ctx context.Context, decide func() error) ([]any, error) {
	const threshold = "slowlog-log-slower-than"
	if err := decide(); err != nil { // the script is known from then on
		return nil, err
	}
	if err := s.client.ConfigSet(ctx, threshold, "0").Err(); err != nil {
		return nil, fmt.Errorf("asking for the slow log: %w", err)
	}
	if err := decide(); err != nil {
		return nil, err
	}
	if err := s.client.ConfigSet(ctx, threshold, "-1").Err(); err != nil {
		return nil, fmt.Errorf("asking for no slow log: %w", err)
	}
	entries, err := s.client.SlowLogGet(ctx, 128).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the slow log: %w", err)
	}
	return callIn(entries)
}

// callIn is the latest call of the script among them.
func callIn(entries []redis.SlowLog) ([]any, error) {
	for _, entry := range entries {
		if !strings.EqualFold(entry.Args[0], "evalsha") {
			continue
		}
		command := make([]any, len(entry.Args))
		for i, arg := range entry.Args {
			if strings.HasSuffix(arg, " more bytes)") || strings.HasSuffix(arg, " more arguments)") {
				return nil, errCut
			}
			command[i] = arg
		}
		return command, nil
	}
	return nil, errors.New("the slow log has no call of the script")
}

// microsPerCall is what Redis spends on the command, in µs, asked 2,000 times.
func (s *redisServer) microsPerCall(command []any) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ask := func() error {
		pipe := s.client.Pipeline()
		for range 200 {
			pipe.Do(ctx, command...)
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	if err := ask(); err != nil {
		return 0, fmt.Errorf("asking the script: %w", err)
	}
	before, err := s.usage()
	if err != nil {
		return 0, err
	}
	for range 10 {
		if err := ask(); err != nil {
			return 0, fmt.Errorf("asking the script: %w", err)
		}
	}
	after, err := s.usage()
	if err != nil {
		return 0, err
	}
	return float64((after.script - before.script).Microseconds()) / float64(after.calls-before.calls), nil
}

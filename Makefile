# What to type: `make run`, `make test`, `make test-all`, `make test-page`, `make lint`, `make build`, `make bench`, `make bench-cluster`, `make fmt`.

# go.mod requires the oldest Caddy that works, so that this module forces no newer
# one on a build. What runs and is tested here uses the newest: it stands in newest.mod.
NEWEST = -modfile=newest.mod

# The Caddy to build with: by default the newest.
CADDY_VERSION ?= $(shell go list $(NEWEST) -m -f '{{.Version}}' github.com/caddyserver/caddy/v2 2>/dev/null)

# The tools have a go.mod of their own, so that this module stays free of them.
TOOL = go tool -modfile=tools/go.mod

.PHONY: run test test-all test-page bench bench-quick bench-smoke bench-cluster bench-once lint fmt build

# Caddy with the quickstart on http://localhost:8080; it needs Go and nothing else. The
# first build takes some 6 minutes on two cores, and 2 GB in Go's caches.
run:
	@scripts/build $(NEWEST)
	@echo 'In another terminal: curl -i localhost:8080. To stop: Ctrl-C.'
	./caddy run --config examples/quickstart/Caddyfile

# Tests, against real Redis and PostgreSQL processes that they start themselves. Those
# that take long are shorter here, and it is told what they leave out.
test:
	@scripts/servers
	@go run ./scripts/testrun $(NEWEST) -race -parallel 8 -timeout 20m -- . kafka

# All of them, in full.
test-all:
	@RATELIMIT_TEST=all $(MAKE) --no-print-directory test
	@RATELIMIT_TEST=all go test $(NEWEST) -run '^TestD7LargestTable$$' ./rulecache

# The page in a real browser, in a minute. It needs Chromium.
test-page:
	@scripts/servers chromium-headless-shell
	cd internal/cli/page/browser && go vet ./... && go test -timeout 10m ./...

# A gateway with this module, without it and with others in its place, under
# load: a quarter of an hour on an otherwise idle machine, written to
# bench/RESULTS.md. `make bench AGAINST=<commit>` puts an earlier commit beside it.
bench:
	@scripts/servers redis-server wrk
	cd bench && go run . -out RESULTS.md -plot ../docs/benchmark.svg $(AGAINST:%=-against %)

# The main part of it in two minutes; it writes nothing.
bench-quick:
	@scripts/servers redis-server wrk
	cd bench && go run . -plan quick $(AGAINST:%=-against %)

# Whether it still works, in half a minute. Its figures say nothing.
bench-smoke:
	@scripts/servers redis-server wrk
	cd bench && go vet ./... && go test ./... && go run . -plan smoke $(if $(wildcard .git),-against HEAD)

# Every Go benchmark once, so that none rots. To measure: go test -bench . -run '^$$' ./localbucket
bench-once:
	@scripts/servers
	go test $(NEWEST) -race -run '^$$' -bench . -benchtime 1x ./...

# Twenty instances against one Redis, and what each part costs, in less than five
# minutes; what comes of it is written into bench/RESULTS.md.
bench-cluster:
	@scripts/servers redis-server
	cd bench && go run ./cluster -results RESULTS.md

lint:
	go mod tidy -diff
	go mod tidy $(NEWEST) -diff
	cd kafka && go mod tidy -diff
	cd kafka && go mod tidy $(NEWEST) -diff
	go vet $(NEWEST) ./...
	cd kafka && go vet $(NEWEST) ./...
	@scripts/formatted
	@scripts/links
	$(TOOL) golangci-lint run ./...
	cd kafka && go tool -modfile=../tools/go.mod golangci-lint run ./...
	cd bench && go mod tidy -diff
	cd bench && go tool -modfile=../tools/go.mod golangci-lint run ./...
	cd internal/cli/page/browser && go mod tidy -diff
	cd internal/cli/page/browser && go tool -modfile=../../../../tools/go.mod golangci-lint run ./...

fmt:
	$(TOOL) gofumpt -w .
	$(TOOL) golangci-lint fmt ./...

# The version of this folder, which the binary says: the tag, or the last one and
# the commit. No file repeats it.
VERSION = $(shell { git describe --tags --always --dirty 2>/dev/null || echo unknown; } | sed 's/^[^v]/v0.0.0-g&/')

# ./caddy: Caddy's standard modules and this one. (Without a version, xcaddy asks the
# network for versions of the module first.)
build:
	@command -v go >/dev/null || { echo 'Go 1.26 or newer is needed, and no go is in the PATH: see https://go.dev/dl/' >&2; exit 1; }
	@echo 'Building ./caddy, $(VERSION). The first time takes about 6 minutes on two cores; after that, half a minute.'
	$(TOOL) xcaddy build $(CADDY_VERSION) --with github.com/caddygate/ratelimit@$(VERSION)=.

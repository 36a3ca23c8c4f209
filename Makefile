# walproxy. `make` lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help

STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEPGUARD    := go run github.com/OpenPeeDeeP/depguard/v2/cmd/depguard@v2.3.0

# What `walproxy version` says. Empty outside of a repository: the program then says what the toolchain recorded.
VERSION       = $(shell git describe --tags --always --dirty 2>/dev/null)
REVISION      = $(shell git describe --always --abbrev=40 --exclude='*' --dirty=+modified 2>/dev/null)
REVISION_TIME = $(shell git log -1 --format=%cI 2>/dev/null)
LDFLAGS       = -X main.version=$(VERSION) -X main.revision=$(REVISION) -X main.revisionTime=$(REVISION_TIME)

FUZZTIME    ?= 30s
SOAKTIME    ?= 12h
DEMO_FLAGS  ?=
TEST_FLAGS  ?=
BENCH_FLAGS ?=
ARCHIVE_FLAGS ?=
# The packages that start goroutines, without real servers, run under the race detector too. Codecs and formats have none,
# and take ten times as long under it.
RACE = $$(go list ./... | grep -vE '^walproxy/(integration|recompress|protocol/wal$$|protocol/link$$|cmd/walproxy/internal/bench)')

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/walproxy
	go build -ldflags '$(LDFLAGS)' -o bin/walproxy ./cmd/walproxy

.PHONY: demo
demo: ## primary, two nodes and a stock standby on this machine, with a proof at the end (DEMO_FLAGS)
	integration/install-postgres.sh --any
	@$(MAKE) --no-print-directory build
	bin/walproxy demo $(DEMO_FLAGS)

.PHONY: test
test: postgres lint ## everything CI runs: format, lint, race detector, all tests, real servers
	go test -race -short -timeout 10m $(RACE)
	go test -count=1 -timeout 14m $(TEST_FLAGS) ./...

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, and the arrows between packages
	@unformatted=$$(gofmt -l .); if [[ -n $$unformatted ]]; then \
		echo "not formatted (make fmt):" $$unformatted; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...
	$(DEPGUARD) ./...

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: postgres
postgres: ## install and fetch the servers that the tests run: PostgreSQL 13 to 18, and an S3 server
	integration/install-tools.sh
	integration/install-postgres.sh
	integration/fetch-postgres.sh
	integration/fetch-s3server.sh

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s)
	@set -e -o pipefail; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "== $$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$package; \
		done; \
	done

.PHONY: soak
soak: postgres ## long seeded runs of the fault tests (SOAKTIME bounds them)
	WALPROXY_SOAK=1 go test -count=1 -v -run Soak -timeout $(SOAKTIME) ./integration/...

.PHONY: bench
bench: build postgres bench-relay bench-engine bench-archive ## measure relay and recompression; writes BENCHMARKS.md (takes long; see the next three)

.PHONY: bench-relay
bench-relay: build ## throughput, commit latency and memory of the relay; a section of BENCHMARKS.md (RELAY_FLAGS)
	go run ./integration/bench -binary bin/walproxy $(RELAY_FLAGS)

.PHONY: bench-engine
bench-engine: build ## recompression against general compressors on real WAL; sections of BENCHMARKS.md (BENCH_FLAGS="-quick", "-parts codecs,commits -wal DIR")
	integration/install-postgres.sh --any
	integration/fetch-postgres.sh 18
	integration/install-tools.sh --bench
	go run ./integration/bench/engine -binary bin/walproxy $(BENCH_FLAGS)

.PHONY: bench-archive
bench-archive: build ## the archive against pgBackRest and general compressors; a section of BENCHMARKS.md (ARCHIVE_FLAGS=-wal 2048)
	integration/install-postgres.sh --any
	integration/install-tools.sh --bench
	integration/fetch-s3server.sh
	go run ./integration/bench/archive -binary bin/walproxy $(ARCHIVE_FLAGS)

.PHONY: clean
clean: ## remove what was built; fetched servers stay
	rm -rf bin

# The targets that .ci/run and people call. "make demo" shows the proxy at work; "make test" passes the tests.
GO ?= go
BIN ?= bin/dshproxy
FUZZTIME ?= 10s
BENCHCOUNT ?= 6
OLD ?=
LDFLAGS = -s -w
export CGO_ENABLED ?= 0

.PHONY: all build demo test unit race costs lint fmt fuzz bench bench-peers bench-bars cover clients soak cross image clean

all: build

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/dshproxy

# A loopback origin, the proxy, an allowed and a denied request through real curl, the explanation, the decision record.
demo: build
	./docker/demo.sh $(BIN)

# What must pass everywhere: the race detector needs cgo.
test: race costs

unit:
	$(GO) test ./...

race:
	CGO_ENABLED=1 $(GO) test -race -shuffle=on ./...

# The guard of what a request allocates, which cannot be counted under the race detector.
costs:
	$(GO) test -count=1 -run '^TestCosts$$' ./proxy

# The linters have a module of their own, so that their dependencies stay out of ours.
lint:
	$(GO) tool -modfile=tools.mod golangci-lint run ./...

fmt:
	$(GO) tool -modfile=tools.mod golangci-lint fmt ./...

# Every fuzz target for FUZZTIME each, from its own package; a run that fuzzed nothing fails.
fuzz:
	./.ci/fuzz $(FUZZTIME)

# Our own benchmarks, with their spread; OLD=FILE compares with what an earlier run has left in bin/bench.txt.
bench:
	mkdir -p bin
	$(GO) test -run '^$$' -bench . -benchmem -count $(BENCHCOUNT) ./... | tee bin/bench.txt
	$(GO) tool -modfile=tools.mod benchstat $(OLD) bin/bench.txt

# Side by side with the reference relays and peers; takes some minutes. DSHBENCH is the folder of the load generator.
bench-peers: build
	./.ci/bench-peers $(BIN)

# Holds it to its bars: five rounds beside the references and five peers, and more. Takes some 25 minutes, and root.
bench-bars: build
	./.ci/bench-bars $(BIN)

cover:
	$(GO) test -coverprofile=/tmp/dshproxy.cover ./... && $(GO) tool cover -func=/tmp/dshproxy.cover | tail -n 1

cross:
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) vet ./...

# An image from scratch, with the CA bundle of this machine.
image: build
	./docker/build.sh $(BIN)

clients:
	./.ci/clients

# A thousand clients that stop at every stage and 5,000 idle tunnels, while the rules are reloaded 300 times: afterwards
# nothing of them may be left in the proxy. Four times over, to see that memory does not grow. Takes two minutes, and
# needs 20,000 descriptors.
soak:
	SOAK=1 CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 8m -v -run '^TestStoppedClients$$' ./cmd/dshproxy

clean:
	rm -rf bin .cache

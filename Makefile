SHELL := /bin/sh
VERSION := $(shell cat VERSION)
REVISION := $(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X vigia/internal/version.Version=$(VERSION) -X vigia/internal/version.Revision=$(REVISION)
GO_TOOL := go tool -modfile=tools/go.mod
VENV := .venv/bin

.PHONY: help
help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: deps build ## Bring up the lab and the whole stack, play a flood, show what happened; leaves it running
	@$(VENV)/vigia demo

.PHONY: down
down: ## Remove every trace of the demo, the cluster of Kubernetes and the clouds of OpenStack, also after a crash
	@tools/bootstrap.sh run
	@$(VENV)/vigia down
	@for lab in kubernetes neutronovn neutronovs neutronlb; do $(VENV)/vigia lab down --lab $$lab || exit 1; done

.PHONY: lab-kubernetes
lab-kubernetes: deps build ## Bring up two nodes of Kubernetes with the chart's images; the first time it builds Kubernetes (root, a quarter of an hour)
	@$(VENV)/vigia lab up --cloud kubernetes

CLOUD ?= neutron-ovn

.PHONY: lab-openstack
lab-openstack: deps build ## Bring up two nodes with real Neutron, which it fetches the first time (root, a minute; CLOUD=neutron-ovs or neutron-linuxbridge)
	@$(VENV)/vigia lab up --cloud $(CLOUD)

.PHONY: deps
deps: ## Install what running needs: Debian packages, uv, the Python environment
	@tools/bootstrap.sh run

.PHONY: tools
tools: ## Install what tests and benchmarks need besides
	@tools/bootstrap.sh test

BIN ?= bin

.PHONY: build
build: ## Build the programs into bin/
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o '$(BIN)/vigia-probe' ./probes
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o '$(BIN)/vigia-exporter' ./exporters/tenant
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o '$(BIN)/vigia-enforcer' ./isolation-agent/enforcer

DESTDIR ?=
PREFIX ?= /usr

.PHONY: install
install: build ## Install a node's programs and units below DESTDIR
	@install -D -m 755 -t '$(DESTDIR)$(PREFIX)/bin' '$(BIN)/vigia-probe' '$(BIN)/vigia-exporter' '$(BIN)/vigia-enforcer'
	@install -D -m 644 -t '$(DESTDIR)$(PREFIX)/lib/systemd/system' deploy/systemd/vigia-probe.service deploy/systemd/vigia-plug.service deploy/systemd/vigia-exporter.service deploy/systemd/vigia-enforcer.service
	@install -D -m 644 deploy/systemd/vigia.sysusers '$(DESTDIR)$(PREFIX)/lib/sysusers.d/vigia.conf'
	@install -D -m 644 deploy/systemd/vigia.tmpfiles '$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/vigia.conf'
	@install -D -m 644 README.md '$(DESTDIR)$(PREFIX)/share/doc/vigia/README.md'
	@install -d -m 750 '$(DESTDIR)/etc/vigia'

GATE := PYTHONPATH=tests $(VENV)/python -m gate

.PHONY: test
test: ## Install what tests need and run them all but the long matrices; what has not changed since it passed is not run again
	@$(MAKE) --no-print-directory tools build
	@$(GATE)

.PHONY: test-long
test-long: ## Run the long matrices: race detector, simulations at full size, docker-compose.yml
	@$(MAKE) --no-print-directory tools build
	@$(GATE) --long

.PHONY: test-all
test-all: ## Run all tests: the long matrices, the clouds and whole releases included
	@$(MAKE) --no-print-directory tools build
	@$(GATE) --all

.PHONY: test-quick
test-quick: ## Run the tests but the end-to-end ones
	@$(MAKE) --no-print-directory tools build
	@$(GATE) --without end-to-end

HOURS ?= 3

.PHONY: soak
soak: deps build ## Run the stack for HOURS=n under churn, fail if anything in it grows; writes soaks/ (root)
	@$(VENV)/vigia soak --hours '$(HOURS)'

.PHONY: test-faults
test-faults: tools build ## Do every fault of docs/concepts/faults.md to a running stack under load (root, half an hour; FAULT=words for some)
	@$(VENV)/pytest -m faults -v -s $(if $(FAULT),-k '$(FAULT)') tests/faults

.PHONY: test-compose
test-compose: ## Run docker-compose.yml on an engine of its own, with images from Debian packages (root)
	@$(MAKE) --no-print-directory tools build
	@$(GATE) --only compose-images --only compose

FUZZ ?=

.PHONY: fuzz
fuzz: tools ## Fuzz every reader of what others write for ten minutes each; FUZZ='webhook FuzzSite' chooses, FUZZ=--list names them (root)
	@PYTHONPATH=tests $(VENV)/python -m fuzz $(FUZZ)

.PHONY: thanos
thanos: ## Build Thanos, at the version that tools/thanos.mod pins, into bin/
	@CGO_ENABLED=0 go build -modfile=tools/thanos.mod -tags slicelabels -trimpath -ldflags '-s -w' -o bin/thanos github.com/thanos-io/thanos/cmd/thanos

# The module v0.305.0 is release 3.5.0.
PROMETHEUS_VERSION = $(shell sed -n 's/^require github.com\/prometheus\/prometheus v0\.\([0-9]\)0*\([0-9][0-9]*\)\./\1.\2./p' tools/prometheus.mod)

.PHONY: prometheus
prometheus: ## Build the Prometheus of docker-compose.yml, at the version that tools/prometheus.mod pins, into bin/ (SITE='--prometheus bin/prometheus')
	@CGO_ENABLED=0 go build -modfile=tools/prometheus.mod -trimpath -ldflags '-s -w -X github.com/prometheus/common/version.Version=$(PROMETHEUS_VERSION)' -o bin/prometheus github.com/prometheus/prometheus/cmd/prometheus

KOLLA ?= /etc/kolla/config
OVS_EXPORTER ?=

.PHONY: kolla
kolla: ## Put jobs, rules and dashboards where kolla-ansible looks for them, below KOLLA (/etc/kolla/config)
	@install -D -m 644 deploy/kolla/10-vigia.yml '$(KOLLA)/prometheus/prometheus.yml.d/10-vigia.yml'
	@if [ '$(OVS_EXPORTER)' = yes ]; then install -m 644 deploy/kolla/20-ovs-exporter.yml '$(KOLLA)/prometheus/prometheus.yml.d/'; else rm -f '$(KOLLA)/prometheus/prometheus.yml.d/20-ovs-exporter.yml'; fi
	@for f in alert-rules/*.rules.yml; do install -m 644 "$$f" "$(KOLLA)/prometheus/vigia-$$(basename "$$f" .rules.yml).rules"; done
	@install -d '$(KOLLA)/grafana/dashboards/vigia' && install -m 644 dashboards/json/*.json '$(KOLLA)/grafana/dashboards/vigia/'

.PHONY: prom-label-proxy
prom-label-proxy: ## Build the proxy through which tenants ask Prometheus, at the version that tools/prom-label-proxy.mod pins, into bin/
	@CGO_ENABLED=0 go build -modfile=tools/prom-label-proxy.mod -trimpath -ldflags '-s -w' -o bin/prom-label-proxy github.com/prometheus-community/prom-label-proxy

.PHONY: helm
helm: ## Build Helm, at the version that tools/helm.mod pins, into bin/
	@CGO_ENABLED=0 go build -modfile=tools/helm.mod -trimpath -ldflags '-s -w' -o bin/helm helm.sh/helm/v3/cmd/helm

.PHONY: chart
chart: tools helm ## Render deploy/helm/vigia with every file of tests/chart/values again: git diff shows what changed
	@PYTHONPATH=tests $(VENV)/python -m chartkit

.PHONY: test-kubernetes
test-kubernetes: ## Run docs/how-to/kubernetes.md on two real nodes: install, upgrade, drain, reboot, uninstall (root, twelve minutes)
	@$(MAKE) --no-print-directory tools build
	@$(GATE) --only kubernetes

.PHONY: test-openstack
test-openstack: ## Run docs/how-to/openstack.md on real Neutron with OVN, Open vSwitch and Linux bridges: floods, policies, migration (root, fifteen minutes)
	@$(MAKE) --no-print-directory tools build
	@$(GATE) --only openstack

.PHONY: test-release
test-release: ## Make whole releases twice, compare, install, upgrade and remove them (root, half an hour)
	@$(MAKE) --no-print-directory tools build
	@$(GATE) --only release

ATTACKS ?=

.PHONY: test-attacks
test-attacks: tools build ## Run the corpus of attacks and of honest traffic on both switches, three times: an hour (root; ATTACKS='--runs 1' for less)
	@$(VENV)/python -m vigia.attacks $(ATTACKS)

.PHONY: test-naming
test-naming: tools build ## Is the attacker named, and nobody else, after each attack of the corpus, with isolation and without: three hours (root; NAMING='--only one-port' for less)
	@$(VENV)/python -m vigia.attacks.naming $(NAMING)

LOSSES ?=

.PHONY: test-losses
test-losses: tools build ## Is each planted loss pinned to the counter that saw it (policers, queue, sockets, drops, MTU, table miss, not on these hosts): 95 minutes (root; LOSSES='--runs 1 --only queue' for less)
	@$(VENV)/python -m vigia.attacks.losses $(LOSSES)

.PHONY: test-scale
test-scale: thanos ## Run docs/how-to/scale.md on real engines: replicas, clusters, remote stores, Thanos (root)
	@$(MAKE) --no-print-directory tools build
	@$(GATE) --only scale --only thanos

.PHONY: lint
lint: tools ## Run the linters and format checks
	@$(GATE) --only lint-go --only lint-python

.PHONY: bench-exporter
bench-exporter: tools build ## Measure the exporter beside node_exporter on 1 000 and 5 000 ports, its programs per packet, its recovery (root)
	@failed=; \
	go test ./internal/bpf/vport -run '^$$' -bench BenchmarkVport -v || failed=yes; \
	go test ./exporters/tenant/bench -run '^$$' -bench 'Ports|Programs|Recovery' -benchtime 1x -timeout 20m -v $(if $(BENCH_PORTS),-args -few-ports $(BENCH_PORTS) -many-ports $(BENCH_PORTS)) || failed=yes; \
	test -z "$$failed"

.PHONY: fmt
fmt: tools ## Format Go and Python sources
	@$(GO_TOOL) gofumpt -w $$(git ls-files '*.go' | grep -v _bpfel.go)
	@$(VENV)/ruff format --quiet .
	@$(VENV)/ruff check --quiet --fix .

.PHONY: generate
generate: tools ## Regenerate BPF objects and reference documentation
	@go generate ./...
	@$(MAKE) --no-print-directory build
	@$(VENV)/python docs/generate.py
	@$(VENV)/python -m vigia_dashboards

.PHONY: docs
docs: tools ## Build the documentation as a site, into .build/site; any warning is an error
	@NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --strict

.PHONY: docs-serve
docs-serve: tools ## Show the documentation at http://127.0.0.1:8000/ while it is written
	@NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs serve --dev-addr 127.0.0.1:8000

.PHONY: bench-probe
bench-probe: tools build ## Compare vigia-probe with fping: CPU, noise, rate, phantom loss, memory (root, needs fping)
	@$(VENV)/python probes/bench/bench.py

BENCH ?=

.PHONY: bench
bench: tools build ## Measure beside every peer in one run: probes, exporter, detection, isolation, growth, floors (root, 40 minutes; BENCH='--only probes --write' for docs/concepts/performance.md)
	@tools/bootstrap.sh peers || echo 'bench: goes on without the peers that are missing'
	@PYTHONPATH=tests $(VENV)/python -m sidebyside $(BENCH)

.PHONY: bench-growth
bench-growth: tools build ## Measure what each part costs at 10, 100, 1 000 and 5 000 of its unit, and how it grows (root, ten minutes)
	@PYTHONPATH=tests $(VENV)/python -m sidebyside --only growth $(BENCH)

.PHONY: bench-floors
bench-floors: tools build ## Measure the fast paths beside bare system calls, an empty program and memory (root, ten minutes)
	@PYTHONPATH=tests $(VENV)/python -m sidebyside --only floors $(BENCH)

.PHONY: bench-mesh
bench-mesh: ## Simulate faults of 100, 1 000 and 10 000 nodes, 1 000 runs each: is what dies named in time, and nobody else (ten minutes)
	@go test ./probes/mesh -run '^$$' -bench BenchmarkMesh -benchtime 1x -timeout 60m -v

.PHONY: bench-isolation
bench-isolation: tools build ## Benchmark isolation: victim and offender by mode, reaction times, cost per packet, CPU and memory, kills
	@$(VENV)/python -m vigia.isolation.bench

.PHONY: bench-agent
bench-agent: tools ## Storm the isolation agent with 10 000 alerts: in one message, and in as many messages
	@cd isolation-agent && ../$(VENV)/python -m tests.bench_storm

.PHONY: bench-compare
bench-compare: tools ## Count what the comparison costs Prometheus: recorded windows, and raw series beside them
	@cd exporters/compare && PYTHONPATH=../../tests ../../$(VENV)/python -m tests.bench_windows

PAGES ?=

.PHONY: bench-pages
bench-pages: tools ## Measure how soon the pages of 100 nodes are painted in a browser: the comparison's, and the console (ten minutes)
	@failed=; \
	(cd exporters/compare && PYTHONPATH=../../tests ../../$(VENV)/python -m tests.bench_pages $(PAGES)) || failed=yes; \
	(cd isolation-agent && ../$(VENV)/python -m tests.bench_pages $(PAGES)) || failed=yes; \
	test -z "$$failed"

.PHONY: bench-verdicts
bench-verdicts: tools ## Measure what live verdicts promise: false ones in 30 days, intervals, time to a verdict (a quarter of an hour; VERDICTS='--write' for docs/concepts/statistics.md)
	@cd internal/py && OPENBLAS_NUM_THREADS=1 ../../$(VENV)/python -m tests.sequential.bench_verdicts $(VERDICTS)

SITE ?=

.PHONY: bench-site
bench-site: tools build ## Measure what a site costs its Prometheus, by its nodes and the age of its data (root, 40 minutes; SITE='--plan 4:1h,40:1h' for less)
	@PYTHONPATH=tests $(VENV)/python -m sitecost $(SITE)

.PHONY: dashboards
dashboards: tools ## Regenerate dashboards/json from their definitions
	@$(VENV)/python -m vigia_dashboards

PROMETHEUS ?= http://127.0.0.1:9090

.PHONY: panels
panels: tools ## Write docs/reference/panels.md: what every panel finds in the running demo's Prometheus, within five minutes
	@$(VENV)/python -m vigia_dashboards.live --prometheus '$(PROMETHEUS)' --wait 300 --write docs/reference/panels.md

.PHONY: rules
rules: tools ## Check rules and run their tests
	@promtool check rules --lint-fatal alert-rules/*.rules.yml
	@promtool test rules alert-rules/tests/*.test.yml

KEY ?=
RELEASE ?=

.PHONY: release
release: tools ## Make what users download into dist/vigia-VERSION/, signed with KEY=file of OpenSSH (KEY=none: not signed); docs/how-to/release.md
	@PYTHONPATH=tools $(VENV)/python -m release --key '$(KEY)' $(RELEASE)

PICTURES ?=

.PHONY: pictures
pictures: tools build ## Take docs/images' pictures of a lab of its own, with a flood and without (root, half an hour; GRAFANA_HOME=folder for dashboards)
	@PYTHONPATH=tests $(VENV)/python -m pictures $(PICTURES)

# `make help` lists the targets.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
ARGS ?=
# Files of tests, instead of all that a target runs.
TESTS ?=
# Tests wait as long as they compute: two for each core.
WORKERS ?= $(shell expr 2 \* $$(nproc))
# Tests that use a whole machine.
FEW_WORKERS = $(if $(filter 0 1,$(WORKERS)),$(WORKERS),2)
PYTEST = $(BIN)/pytest --dist loadfile -n
CLASS ?= gatehouse-nginx
HELM ?= $(CURDIR)/.cache/helm/helm
HELM_VERSION := v3.19.2
.DEFAULT_GOAL := help
# Compiled modules and rewritten assertions are stored, so that no process compiles them again.
unexport PYTHONDONTWRITEBYTECODE
# Programs in Go, such as kubectl and kube-apiserver, are short-lived in tests: they collect less garbage.
export GOGC ?= 400
.PHONY: $(shell sed -nE 's/^([a-z0-9-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help:  ## This list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

env: $(VENV)/.run  ## Make the environment to run Gatehouse
env-dev: $(VENV)/.dev typings/.made  ## Make the environment to develop it

demo: env  ## Start Gatehouse, apply examples/cafe, show real requests (ARGS=--once to end after)
	@$(BIN)/gatehouse demo $(ARGS)

prepare:  ## Install what the gate uses and this machine lacks (Debian, root)
	@bash scripts/prepare.sh

gate:  ## Run the checks and tests that decide in CI, and print a summary (after `make prepare`)
	@$(PYTHON) scripts/gate.py gate

gate-runs:  ## Run the gate again and again on this commit, and print a table (ARGS="--runs 10 --busy 3")
	@$(PYTHON) scripts/gate_runs.py $(ARGS)

evidence:  ## Run what CI runs beside the gate: long tests, all faults, images (after `make prepare`)
	@$(PYTHON) scripts/gate.py evidence

STAGE = $(PYTEST) $(WORKERS) --no-loadscope-reorder -m "not long and not cluster and (kubernetes or not peers)"

# Directories with a suite of their own.
OTHERS := e2e security clients charts

test: env-dev  ## Run the tests, without those of the following suites
	@$(STAGE) $(or $(TESTS),tests packages $(OTHERS:%=--ignore=tests/%)) $(ARGS)

e2e: env-dev  ## Run the tests of whole installations
	@$(STAGE) $(or $(TESTS),tests/e2e) $(ARGS)

security: env-dev  ## Run the attacks of tenants, clients and agents
	@$(STAGE) $(or $(TESTS),tests/security) $(ARGS)

clients: env-dev  ## Run kubectl and other clients against the API server
	@$(STAGE) $(or $(TESTS),tests/clients) $(ARGS)

charts: env-dev  ## Run the tests of the chart (skips without helm)
	@$(STAGE) $(or $(TESTS),tests/charts) $(ARGS)

long: env-dev  ## Run the tests that take minutes, and property tests with other examples
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-random} \
	  $(PYTEST) $(FEW_WORKERS) --no-loadscope-reorder -m "(long or hypothesis) and not peers" $(TESTS) $(ARGS)

# All that is written in Python.
SOURCES := src packages tests bench scripts examples hatch_build.py

check: env-dev  ## All checks that run nothing, two at a time: lint, types, contracts
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint types contracts

lint: env-dev  ## Formatting, lint and prose
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/python scripts/check_prose.py
	$(BIN)/hadolint images/Dockerfile
	$(BIN)/shellcheck images/*.sh scripts/*.sh .ci/run

types: env-dev  ## Strict types, over source, tests and benchmarks
	$(BIN)/mypy

contracts: env-dev  ## Import contracts of the layers
	$(BIN)/lint-imports

audit: env-dev  ## Compare the locked packages with known vulnerabilities (skips what it cannot look up)
	$(BIN)/pip-audit --disable-pip --require-hashes --progress-spinner off \
		$(patsubst %,-r %,$(wildcard requirements/*.lock))

format: env-dev  ## Format the code
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

golden: env-dev  ## Rewrite the golden files; review the diff
	$(BIN)/pytest -q tests/golden -m "not process" --refresh-golden
	$(BIN)/pytest -q tests/golden -m process

golden-check: env-dev  ## Compile all cases and compare with the golden files, without the proxies
	@$(BIN)/pytest -q tests/golden -m "not process" $(ARGS)

faults: env-dev  ## Kill, disconnect, pause and fill processes and disks, under traffic (disks need root)
	@$(PYTEST) $(FEW_WORKERS) $(or $(TESTS),tests/faults) $(ARGS)

smoke-faults: env-dev  ## One fault of each kind
	@$(PYTEST) $(FEW_WORKERS) -m smoke $(or $(TESTS),tests/faults) $(ARGS)

PEERS = $(PYTEST) $(FEW_WORKERS) -m "peers and not cluster" --peers-strict

peers: env-dev  ## Compare with programs of other projects, and rewrite the results (GATEHOUSE_PEERS, etcd)
	@$(PEERS) --peers-report tests/peers/report.json $(TESTS) $(ARGS)
	@$(BIN)/python scripts/reference.py

peers-available: env-dev  ## Run what `make test` does not, with those programs of other projects that are here
	@$(PYTEST) $(FEW_WORKERS) -m "peers and not cluster and (long or not kubernetes)" $(TESTS) $(ARGS)

peers-check: env-dev  ## Run the tests of `make peers`, and rewrite nothing
	@$(PEERS) --peers-compare tests/peers/report.json $(TESTS) $(ARGS)

images-test: env-dev  ## Build image contents in a chroot and test them (needs root and debootstrap)
	@$(BIN)/pytest $(or $(TESTS),tests/images) $(ARGS)

conformance: env-dev  ## Run an official conformance suite (Go, root; CLASS=gatehouse-envoy, SUITE=inference)
	@$(BIN)/python tests/conformance/run.py $(if $(SUITE),--suite $(SUITE)) --controller gatehouse.dev/$(CLASS:gatehouse-%=%) $(ARGS)

CLUSTER := PYTHONPATH=tests $(BIN)/python -m cluster

kube-apiserver: env-dev  ## Build kube-apiserver for the tests, unless GATEHOUSE_PEERS has it (Go)
	@$(CLUSTER) kube-apiserver

cluster: env-dev  ## Start a Kubernetes cluster on this machine, with Gatehouse's images (root, Go)
	@$(CLUSTER) up

cluster-down:  ## End the cluster and remove its state
	@$(CLUSTER) down

cluster-exec:  ## Run a command in the cluster, such as ARGS="kubectl get pods -A"
	@$(CLUSTER) exec $(ARGS)

cluster-test: env-dev $(HELM)  ## Install the chart in the cluster, and serve traffic through every change
	@$(BIN)/pytest -v tests/cluster $(ARGS)

cluster-evidence: env-dev $(HELM)  ## Run `make cluster-test` after installing what it lacks of Debian (root)
	@packages=$$($(CLUSTER) packages) && { [ -z "$$packages" ] || apt-get install -y -qq $$packages >/dev/null; }
	@$(BIN)/pytest -v $(or $(TESTS),tests/cluster) $(ARGS)

cluster-conformance: env-dev $(HELM)  ## Run the official conformance suite in the cluster (CLASS=gatehouse-envoy)
	@$(BIN)/python tests/conformance/run.py --cluster --controller gatehouse.dev/$(CLASS:gatehouse-%=%) $(ARGS)

differential: env-dev  ## Compare NGINX with the oracle over 200,000 random requests (PAIRS, SEED)
	@PAIRS=$${PAIRS:-200000} $(BIN)/pytest -q tests/differential $(ARGS)

bench: env-dev  ## Measure route propagation at 10, 1,000 and 5,000 routes (CLASS=gatehouse-envoy)
	$(BIN)/python bench/route_propagation.py --class $(CLASS) $(ARGS)

bench-routes: env-dev  ## Measure attaching, changing and endpoints of 1,000 routes
	$(BIN)/python bench/routes.py $(ARGS)

bench-scale: env-dev  ## Measure one change every 100 ms on 50 namespaces of 100 routes, by class
	$(BIN)/python bench/route_scale.py $(ARGS)

bench-agents: env-dev  ## Measure thousands of agents under one control plane
	$(BIN)/python bench/agents.py $(ARGS)

bench-apiserver: env-dev  ## Measure the API server beside etcd (needs wrk and etcd)
	$(BIN)/python bench/apiserver.py $(ARGS)

bench-many-objects: env-dev  ## Measure what 100,000 objects of one tenant cost others
	$(BIN)/python bench/many_objects.py $(ARGS)

bench-many-routes: env-dev  ## Measure what 50,000 HTTPRoutes of one tenant cost others
	$(BIN)/python bench/many_routes.py $(ARGS)

bench-quarantine: env-dev  ## Measure a good change while the cause of rejections is searched
	$(BIN)/python bench/quarantine.py $(ARGS)

bench-endpoints: env-dev  ## Measure how soon a change of endpoints is in traffic
	$(BIN)/python bench/endpoints.py $(ARGS)

bench-discovery: env-dev  ## Measure changes on their way through the relay into an Envoy
	$(BIN)/python bench/discovery.py $(ARGS)

bench-hosted: env-dev  ## Measure hosted kube-apiservers beside HAProxy and NGINX (needs h2load)
	$(BIN)/python bench/hosted.py $(ARGS)

bench-kube: env-dev  ## Measure Envoy in front of kube-apiservers: requests, watches (needs h2load)
	$(BIN)/python bench/kube_apiservers.py $(ARGS)

bench-reviews: env-dev  ## Measure the cost of a review at the reviewer of kube-apiservers
	$(BIN)/python bench/reviews.py $(ARGS)

bench-lb: env-dev  ## Measure how 50 load balancers outside follow one node
	$(BIN)/python bench/load_balancers.py $(ARGS)

bench-lb-machines: env-dev  ## Measure how 50 machines outside with NGINX follow one node
	$(BIN)/python bench/load_balancer_machines.py $(ARGS)

bench-provisioning: env-dev  ## Measure the provisioning of 200 Gateways, and the cost of a change of one
	$(BIN)/python bench/provisioning.py $(ARGS)

bench-gateways: env-dev  ## Count the controller's work for a change of one Gateway, among 10 to 1,000
	$(BIN)/python bench/gateways.py $(ARGS)

bench-throughput: env-dev  ## Measure NGINX as configured here beside a configuration by hand (needs wrk)
	$(BIN)/python bench/throughput.py $(ARGS)

bench-agent: env-dev  ## Measure the cost of an agent, and the time until it serves
	$(BIN)/python bench/agent_start.py $(ARGS)

bench-access-log: env-dev  ## Measure the cost of metrics and of the access log (needs wrk)
	$(BIN)/python bench/access_log.py $(ARGS)

bench-large: env-dev  ## Measure one change a second on 5,000 routes with certificates and filters
	$(BIN)/python bench/large_bundle.py $(ARGS)

kinds: env-dev  ## Follow another Kubernetes: rewrite the table of its types (needs Go)
	$(BIN)/python scripts/kinds.py packages/kube-base/src/kube_base/types/builtin_types/kinds.txt

gateway-api: env-dev  ## Follow another Gateway API: rewrite its definitions (needs Go)
	$(BIN)/python scripts/gateway_api.py src/gatehouse/apiserver_extension/bundled

validation-cases: env-dev  ## Record what Kubernetes says about objects of Gateway API (needs kube-apiserver, etcd)
	PYTHONPATH=tests $(BIN)/python scripts/validation_cases.py

nginx-gateway: env-dev  ## Rewrite the definitions of gateway.nginx.org
	$(BIN)/python scripts/nginx_gateway.py src/gatehouse/apiserver_extension/bundled

ngf-compatibility: env-dev  ## Rewrite the page of fields; CRDS: file of CRDs, RELEASE: its release
	$(BIN)/python scripts/ngf_compatibility.py "$(CRDS)" "$(RELEASE)"

gatehouse-dev: env-dev  ## Rewrite the definitions of gatehouse.dev
	$(BIN)/python scripts/gatehouse_dev.py src/gatehouse/apiserver_extension/bundled

kubegateway: env-dev  ## Rewrite the definitions of proxy.kubegateway.io
	$(BIN)/python scripts/kubegateway.py src/gatehouse/apiserver_extension/bundled

$(CURDIR)/.cache/helm/helm:
	GOBIN=$(CURDIR)/.cache/helm go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

helm: $(CURDIR)/.cache/helm/helm  ## Build helm, for the chart's tests (needs Go)

collector: env-dev  ## Build the OpenTelemetry Collector, for tests of traces (needs Go)
	@target="$$(PYTHONPATH=tests $(BIN)/python -c \
	  'from fakes import collector_process; print(collector_process.executable())')"; \
	  test -x "$$target" || (cd tests/libraries/collector && go build -p 2 -o "$$target" .)

# Programs of tests, and modules that tests download, so that tests themselves need no registry.
test-programs: env-dev
	@cd tests/fakes/kube_streams && go build -p 2 -o $(CURDIR)/.cache/kube_streams .
	@cd tests/libraries/controller_runtime && go build -p 2 -o /dev/null .
	@cd $(or $(TMPDIR),/tmp) && GOTOOLCHAIN=go1.27.0 go mod download sigs.k8s.io/gateway-api@v1.7.0
	@$(BIN)/python tests/conformance/run.py --build
	@cp -r tests/libraries/node .cache && cd .cache/node && npm ci --no-audit --no-fund --silent

chart: env-dev $(HELM)  ## Rewrite the generated files of the chart, and deploy/
	$(BIN)/python scripts/chart.py $(HELM)

generated: env-dev $(HELM)  ## Rewrite what follows from a kind of gatehouse.dev; ARGS="-k GOLDEN-CASE"
	$(BIN)/python scripts/gatehouse_dev.py src/gatehouse/apiserver_extension/bundled
	$(BIN)/python scripts/chart.py $(HELM)
	$(BIN)/python scripts/reference.py
	$(BIN)/pytest -q tests/charts/test_charts_rendering.py --refresh-golden
	$(BIN)/pytest -q tests/golden --refresh-golden $(ARGS)

reference: env-dev  ## Rewrite the reference pages that follow from the code
	$(BIN)/python scripts/reference.py

dashboards: env-dev  ## Rewrite the Grafana dashboards of the chart
	$(BIN)/python scripts/dashboards.py

cover: env-dev  ## Run the tests and report coverage
	$(BIN)/pytest -n 2 --dist loadfile --cov --cov-report=term

lock: env-dev  ## Lock the dependencies again (NAME=--upgrade-package=NAME for one of them)
	$(BIN)/pip install -q uv
	UV=$(BIN)/uv sh scripts/lock.sh $(or $(NAME),--upgrade)

WIRE := src/gatehouse/wire packages/kube-api-server/src/kube_api_server/wire

clean:  ## Remove build products
	rm -rf $(VENV) build dist packages/*/dist $(WIRE) typings

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q python3-venv; } || \
	  { echo "Python's venv module is missing: install the package python3-venv" >&2; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# What an environment is installed again for.
BUILT := pyproject.toml $(wildcard packages/*/pyproject.toml proto/*/*/*.proto packages/*/proto/*/*.proto)

$(VENV)/.run: requirements/run.lock $(BUILT) | $(BIN)/python
	@bash scripts/install_lock.sh $(BIN)/python requirements/run.lock
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(BUILT) | $(BIN)/python
	@bash scripts/install_lock.sh $(BIN)/python requirements/dev.lock
	@touch $@ $(VENV)/.run

# Stubs follow the locked version of xds-protos, so a new environment writes them again.
# mypy's cache remembers modules that were missing.
typings/.made: scripts/envoy_stubs.py $(VENV)/.dev
	@echo "Writing type stubs of Envoy's messages to typings/"
	@$(BIN)/python scripts/envoy_stubs.py typings
	@rm -rf .mypy_cache
	@touch $@

# Every target says what it does; `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Each starts servers of its own. The fault tests keep two cores busy by themselves, so they come afterwards.
TEST_PROCESSES ?= 2
# What runs against servers may fail once on a busy machine; rules and documents may not (docs/adr/0023).
FAILED := .pytest_cache/of-make
NOTED := -o cache_dir=$(FAILED) --cache-clear
SECOND_CHANCE = status=$$?; $(BIN)/python -m tests.second_chance $(FAILED) $$status
OPENSTACK_VENV := .openstack/venv
OPENSTACK_STAMP := $(OPENSTACK_VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup openstack demo up down test conformance chaos fault-matrix test-real lint format bench openapi asyncapi proto lock histories images clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install the locked dependencies

$(STAMP): requirements.lock pyproject.toml
	@echo "setup: creating $(VENV) and installing the locked dependencies (about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "setup: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make setup PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "setup: the venv module is missing. On Debian or Ubuntu: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(STAMP)
	@echo "setup: done, $$($(BIN)/python --version) in $(VENV)"

# Not part of `make setup`: only tests start a real OpenStack.
openstack: $(OPENSTACK_STAMP)

$(OPENSTACK_STAMP): lab/openstack/requirements.lock
	@echo "openstack: creating $(OPENSTACK_VENV) with Keystone, Placement, Nova, Blazar and Ironic (one to two minutes, 520 MB)"
	@$(PYTHON) -m venv --clear $(OPENSTACK_VENV)
	@$(OPENSTACK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r lab/openstack/requirements.lock
	@touch $(OPENSTACK_STAMP)
	@echo "openstack: done"

lock: ## Resolve the dependencies again and pin them with hashes
	@command -v uv >/dev/null || { echo "lock: uv is needed. Try: pip install uv"; exit 2; }
	uv pip compile pyproject.toml --extra control --extra lab --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet -o requirements.lock
	uv pip compile lab/openstack/requirements.in --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet -o lab/openstack/requirements.lock
	@echo "lock: requirements.lock holds $$(grep -c == requirements.lock) pinned packages"

lint: setup ## Format check, lint, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@echo "lint: formatting, lint rules, types and import contracts hold"

format: setup ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

up: setup ## Start the embedded stack and the control plane, print where to look
	@$(BIN)/sco-lab up

down: setup ## Stop everything that `make up` started; data is kept
	@$(BIN)/sco-lab down

demo: setup ## Run the main job on the embedded stack, from contract files to a running fleet
	@$(BIN)/sco-lab demo $(ARGS)

test: setup openstack ## Run the tests that need neither root nor Debian packages
ifeq ($(ARGS),)
	@$(BIN)/pytest -m "not real" $(NOTED) -n $(TEST_PROCESSES) --dist loadfile --ignore=tests/faults; $(SECOND_CHANCE)
	@$(BIN)/pytest -m "not real" $(NOTED) tests/faults; $(SECOND_CHANCE)
	@echo "test: every room passed, and the faults by themselves"
else
	@$(BIN)/pytest -m "not real" $(ARGS)
endif

conformance: setup openstack ## Run the provider adapter's suite against the simulated cloud and against real Nova
	@$(BIN)/pytest tests/conformance $(ARGS)

chaos: setup ## Live through the fault matrix; ARGS="--cases 5000 --seed 7" for longer
	@$(BIN)/python -m lab.chaos $(ARGS)

fault-matrix: setup ## Write docs/reference/fault-matrix.md from a run of the fault matrix
	@$(BIN)/python -m lab.chaos --write docs/reference/fault-matrix.md

test-real: setup ## Install a browser, Slurm, Swift and promtool from Debian packages and run the tests that need them
	@bash tests/real/install.sh
	@$(BIN)/pytest -m real $(NOTED) $(ARGS); $(SECOND_CHANCE)

bench: setup ## Measure planner, placements, provider faults and recovery; writes build/bench.json
	@$(BIN)/sco-lab bench $(ARGS)

openapi: setup ## Write docs/reference/openapi.json from the code
	@$(BIN)/python -m api.openapi docs/reference/openapi.json

proto: setup ## Write the gRPC stubs in wire/proto from control.proto
	@$(BIN)/buf lint wire/proto
	@$(BIN)/python -m lab.stubs

asyncapi: setup ## Write docs/reference/asyncapi.yaml from the code
	@$(BIN)/python -m wire.asyncapi docs/reference/asyncapi.yaml

histories: setup ## Record the workflow histories that replay tests use
	@$(BIN)/python -m tests.workflows.record_histories

images: setup ## Draw the pictures of the documentation from a running laboratory
	@$(BIN)/python docs/make_images.py $(ARGS)

clean: ## Stop what runs here, remove the virtual environment, lab data and build output
	@for dir in .lab .lab/demo; do [ ! -e $$dir/stack.json ] || $(BIN)/sco-lab down --data-dir $$dir; done
	rm -rf $(VENV) .openstack .lab build

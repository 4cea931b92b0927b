# One verb a need. Everything runs from .venv, which `make setup` builds from requirements.lock; every other
# target makes sure of it first, so a fresh clone needs nothing prepared.

BIN := .venv/bin
STAMP := .venv/.stamp
# How many processes the tests are spread over; 0 is the one that make starts. Many tests wait for a server most of
# the time, the long ones less.
test: PROCESSES ?= 3
test-long faults: PROCESSES ?= 2
# The newer server that the long tests take PostgreSQL capture through once more: 17 or 18.
POSTGRES := 18
PYTHON_FILES := src tests scripts/docs $(wildcard bench)

.DEFAULT_GOAL := help
.PHONY: setup demo test test-long faults soak bench bench-check profile check format docs lock clean help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP) ## Install system packages and the locked environment (.venv); instant when done

$(STAMP): requirements.lock pyproject.toml scripts/setup scripts/system-packages
	@scripts/setup

demo: $(STAMP) ## Run the demonstration (DEMO_SECONDS=… ends it by itself, SINK=opensearch has servers)
	@test "$(SINK)" != opensearch || scripts/test-servers
	@$(BIN)/python -m tailrace.demo

test: $(STAMP) ## Run the tests, in random order, three at a time (PROCESSES=0 for one; TESTS=… chooses)
	@scripts/test-servers
	@scripts/test $(PROCESSES) -m "not long" $(TESTS)

test-long: $(STAMP) ## Run the long tests: faults, bounds, an hour of random life, fuzz, a newer PostgreSQL
	@scripts/test-servers
	@scripts/test $(PROCESSES) -m long $(TESTS)
	@test -n "$(TESTS)" || ! scripts/test-servers $(POSTGRES) || \
		TAILRACE_POSTGRES=$(POSTGRES) scripts/test $(PROCESSES) -m "not spark" \
		--ignore tests/capture/postgres/test_fuzz.py tests/capture/postgres

soak: $(STAMP) ## Live at random for SOAK_HOURS, 8 by default (VARIANTS="sqlite,postgres,opensearch" chooses)
	@scripts/test-servers
	@$(BIN)/python -m tests.life run --hours $(or $(SOAK_HOURS),8) --shrink 1800 \
		$(if $(VARIANTS),--variants $(VARIANTS)) --place artifacts/soak

bench: $(STAMP) ## Run the benchmarks, write their page and plots (BENCH="name --option" chooses)
	@case "$(BENCH)" in sqlite*) ;; *) scripts/test-servers ;; esac
	@$(BIN)/python -m bench $(BENCH)

bench-check: $(STAMP) ## Compare the ratios of the last run, or of a new one, with bench/baseline.json
	@scripts/test-servers
	@$(BIN)/python -m bench check

profile: $(STAMP) ## Draw flame graphs of a pipeline (PIPELINE=tailrace.toml, the demonstration's; SECONDS=30)
	@$(BIN)/python -m bench.profiling $(PIPELINE) $(if $(SECONDS),--seconds $(SECONDS))

faults: $(STAMP) ## Run every test of the fault matrix and write docs/faults.md (LEFT=1: what has not passed yet)
	@scripts/test-servers
	@tests=$${TESTS:-$$($(BIN)/python -m tests.faults.rows)}; \
		record="$(BIN)/python -m pytest -p tests.faults.recording --record-faults tests/faults/results.json"; \
		test -z "$(LEFT)" || record="$$record --left"; \
		$$record -n $(PROCESSES) --dist worksteal $$tests || $$record -n 0 --left --again $$tests; code=$$?; \
		$(BIN)/python -m tests.faults.recording; $(BIN)/python scripts/docs; exit $$code

check: $(STAMP) ## Run every static check, all of them even if one fails: ruff, mypy, layers, documentation
	@failed=; \
	$(BIN)/ruff check $(PYTHON_FILES) || failed="$$failed ruff-check"; \
	$(BIN)/ruff format --check $(PYTHON_FILES) || failed="$$failed ruff-format"; \
	$(BIN)/mypy src tests || failed="$$failed mypy"; \
	$(BIN)/lint-imports --no-logo || failed="$$failed layers"; \
	$(BIN)/python scripts/docs --check || failed="$$failed docs"; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

format: $(STAMP) ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix-only $(PYTHON_FILES)
	@$(BIN)/ruff format $(PYTHON_FILES)

docs: $(STAMP) ## Write the generated parts of the documentation
	@$(BIN)/python scripts/docs

lock: $(STAMP) ## Resolve the dependencies anew into the lock files (UPGRADE=--upgrade for newer ones)
	@$(BIN)/uv pip compile -q $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --all-extras --group dev pyproject.toml -o requirements.lock >/dev/null
	@$(BIN)/uv pip compile -q $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header -c requirements.lock bench/peers.in -o requirements-bench.lock >/dev/null
	@$(BIN)/uv pip compile -q $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header bench/pgsync.in -o requirements-pgsync.lock >/dev/null

clean: ## Remove what make and the tools left behind, the environment too
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build \
		spark-warehouse metastore_db derby.log artifacts profile bench/results
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

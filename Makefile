# The usual commands. `make check` and `make test` together are what CI runs (.ci/run).
PYTHON = .venv/bin/python

.PHONY: help dev check docs test chaos nightly soak simulation bench screenshots

help:
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*##/ -/'

dev: ## a venv with everything, and the hooks of pre-commit
	python3 -m venv .venv
	.venv/bin/pip install -q -e '.[test]' pre-commit
	mkdir -p .venv/typing && ln -sfn ../.. .venv/typing/oncelog
	.venv/bin/pre-commit install --hook-type pre-commit --hook-type commit-msg

check: ## lint, format, types, and the tests that keep the house in order
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright
	$(PYTHON) -m pytest -q tests/tidy

docs: ## the pages that are made from the code
	$(PYTHON) -m tests.tidy.test_docs
	$(PYTHON) -m tests.proof.judge.page

test: ## the tests of the README
	$(PYTHON) -m pytest -q -n 3 --dist loadgroup -m "not chaos and not soak and not spark_slow"

chaos: ## minutes of faults under load
	$(PYTHON) -m pytest -m chaos

nightly: ## all heavy tests, and minutes of faults
	$(PYTHON) -m pytest -q -n 2 --dist loadgroup -m "in_turn or chaos"

soak: ## thousands of simulated clusters, and a large real one: hours
	$(PYTHON) -m pytest -m soak

simulation: ## some seeds of the cluster in one process
	$(PYTHON) -m tests.simulation.run --seeds 0:20

bench: ## what replicas cost
	.venv/bin/oncelog bench replication

screenshots: ## pictures of the page, with chromium
	$(PYTHON) -m tests.ui.screenshots

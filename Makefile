# The two commands a fresh machine needs are `make run` and `make test`; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp
MODEL ?= llama-3-70b
CLUSTER ?= four-hubs

.PHONY: help run test test-all check format bench clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(STAMP) ## plan Llama-3 70B over four hubs: comparison, reasons, out/report.html, out/plan.json, out/trace.json
	@$(BIN)/hippo compare --model $(MODEL) --cluster $(CLUSTER) --out out

test: $(STAMP) ## every quick test, on two cores
	@$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(STAMP) ## every test, the slow ones too, on other examples each time
	@$(BIN)/python -m pytest -n 2 --hypothesis-profile exploring

check: $(STAMP) ## lint, types, import contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(STAMP) ## put the code into its form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP) ## print the figures of docs/figures.md, one table each
	@$(BIN)/hippo bench

clean: ## remove what was made, the environment too
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(STAMP): pyproject.toml tools/environment.sh
	@PYTHON="$(PYTHON)" bash tools/environment.sh .venv
	@touch $@

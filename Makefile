# The two commands a fresh machine needs are `make run` and `make test`; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
BASE := .venv/.base
DEV := .venv/.dev
MODEL ?= llama-3-70b
CLUSTER ?= four-hubs

.PHONY: help run compare test test-all check format bench demo audit docs clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(BASE) ## plan Llama-3 70B over four hubs, with the reasons: out/report.html, out/plan.json, out/trace.json
	@$(BIN)/hippo plan --model $(MODEL) --cluster $(CLUSTER) --out out

compare: $(BASE) ## the same by every planner, side by side: out/compare/report.html and the like
	@$(BIN)/hippo compare --model $(MODEL) --cluster $(CLUSTER) --out out/compare

test: $(DEV) ## a quick test of each promise, on two cores
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: $(DEV) ## every test, the slow ones too, on other examples each time; what is exported, by its targets' parsers
	@$(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile exploring
	@bash tools/targets.sh

check: $(DEV) ## lint, types, import contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(DEV) ## put the code into its form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(DEV) ## print the figures of results/figures.md, one table each
	@$(BIN)/hippo bench

demo: $(DEV) ## a service in an emulated WAN with real training jobs: a link collapses, layers move; opens its page
	@$(BIN)/hippo serve --demo out/demo

audit: $(DEV) ## what is dangerous: own code by rule, packages among known vulnerabilities
	@bash tools/audit.sh

docs: $(DEV) ## build the site with search: out/site/index.html
	@$(BIN)/mkdocs build --quiet
	@echo "wrote out/site/index.html"

clean: ## remove what was made, the environment too
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(BASE): pyproject.toml tools/environment.sh
	@PYTHON="$(PYTHON)" bash tools/environment.sh .venv
	@touch $@

$(DEV): $(BASE)
	@PYTHON="$(PYTHON)" bash tools/environment.sh .venv dev,learn,solve
	@touch $@

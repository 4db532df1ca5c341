# usboost: every target in a line with `make help`.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

DATASETS ?= ci_a ci_b iris digits_rows
ROUNDS ?=
SEEDS ?=
# each folder a workspace, with its own params.yaml, data and reports
run services: WORKSPACE ?= workspace
paper: WORKSPACE ?= paper
PREFECT_PORT ?=
MLFLOW_PORT ?=
DOCS_PORT ?= 8000

export PATH := $(CURDIR)/$(BIN):$(PATH)
export USBOOST_HOME ?= $(CURDIR)/.usboost

# without an advertisement of what may follow MkDocs
MKDOCS = NO_MKDOCS_2_WARNING=1 python -m mkdocs

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --compile-bytecode -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q usboost tasks flows
	touch $@

.PHONY: install
install: $(READY) ## create .venv and install everything into it

.PHONY: run
run: $(READY) ## make what params.yaml says (as dvc repro), the demo at first, in workspace/, and say where to look
	@echo "making what $(WORKSPACE)/params.yaml says; the demo takes 2 to 3 minutes, and seconds again …"
	@python -m flows.local.workspace make $(WORKSPACE)
	@cd $(WORKSPACE) && python -m flows.local.workspace run || test $$? -eq 130  # Ctrl-C, which it has said

.PHONY: paper
paper: $(READY) ## the same on the real files: make paper DATASETS="ci_a ci_b" [ROUNDS=100] [SEEDS=1]
	python -m flows.local.workspace make $(WORKSPACE) --profile paper $(addprefix --dataset ,$(DATASETS)) \
	  $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEEDS),--seeds $(SEEDS))
	@cd $(WORKSPACE) && python -m flows.local.workspace run

.PHONY: ui
ui: $(READY) ## open the pages of MLflow and Prefect on loopback until Ctrl-C: [MLFLOW_PORT=5000]
	@echo "starting the servers of MLflow and Prefect …"
	@python -m flows.local.services ui $(if $(MLFLOW_PORT),--mlflow-port $(MLFLOW_PORT))

.PHONY: services
services: $(READY) ## start Prefect, MLflow and workers on loopback: [PREFECT_PORT=4200] [MLFLOW_PORT=5000] [AUTH=1]
	@test -d $(WORKSPACE) || python -m flows.local.workspace make $(WORKSPACE)
	@cd $(WORKSPACE) && python -m flows.local.services start $(if $(PREFECT_PORT),--prefect-port $(PREFECT_PORT)) \
	  $(if $(MLFLOW_PORT),--mlflow-port $(MLFLOW_PORT)) $(if $(AUTH),--auth)

.PHONY: services-stop
services-stop: $(READY) ## end what `make services` started, and the Prefect server that flows share
	@python -m flows.local.services stop

SPREAD = -n 3 --dist loadfile --no-loadscope-reorder --junitxml=.usboost/tests.xml

.PHONY: test
test: $(READY) ## the tests before a commit: under ten minutes on two cores
	OMP_NUM_THREADS=1 python -m pytest $(SPREAD) -m "not slow and not long"

.PHONY: test-all
test-all: $(READY) ## these and the slow ones, of flows, servers and killed commands: what CI runs
	OMP_NUM_THREADS=1 python -m pytest $(SPREAD)

.PHONY: test-long
test-long: $(READY) ## the tests that take minutes: grids on every runner, workers that are killed
	python -m pytest -m long

.PHONY: bench
bench: $(READY) ## measure speed and memory, as ratios (USBOOST_DATA: the real census files)
	python -m benchmarks.speed.bench

.PHONY: gpu-check
gpu-check: $(READY) ## what needs a GPU, in ten minutes: predictions, seconds, memory, a killed fit, the pool gpu
	python -m benchmarks.speed.gpu_check

.PHONY: headline
headline: $(READY) ## README's table by the present code (hours; USBOOST_DATA: the raw files)
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -c constraints.txt -e '.[others]'
	python -m benchmarks.study.headline run "$(USBOOST_DATA)" headline
	python -m benchmarks.study.headline write

.PHONY: results
results: $(READY) ## the papers' models on real data, several seeds each (hours); docs/results/papers.md
	python -m benchmarks.study.results run results
	python -m benchmarks.study.results write results

.PHONY: fuzz
fuzz: $(READY) ## 200,000 mutated files through every reader; 2,000 tables that change between fit and predict
	python -m benchmarks.robustness.fuzz --inputs 200000
	python -m benchmarks.robustness.changes --tables 2000

.PHONY: kill
kill: $(READY) ## SIGKILL training processes 250 times and compare what they end with
	python -m benchmarks.robustness.kill --kills 200 --ranks 50

.PHONY: mutants
mutants: $(READY) ## break the code on purpose: which test notices (minutes)
	OMP_NUM_THREADS=1 nice -n 10 python -m benchmarks.mutants

.PHONY: size
size: $(READY) ## lines, files and words, beside the budget in pyproject.toml and the last commit on main
	@python -m tests.size

.PHONY: docs
docs: $(READY) ## build the documentation site in site/; a link that leads nowhere is an error
	@$(MKDOCS) build --strict
	@echo "open site/index.html, or \`make docs-serve\` for a site with search"

.PHONY: docs-serve
docs-serve: $(READY) ## show the documentation site on loopback while it is edited: [DOCS_PORT=8000]
	$(MKDOCS) serve --dev-addr 127.0.0.1:$(DOCS_PORT)

.PHONY: lint
lint: $(READY) ## ruff and mypy
	ruff check .
	ruff format --check .
	mypy

.PHONY: format
format: $(READY) ## format the code
	ruff check --fix .
	ruff format .

.PHONY: clean
clean: ## end the servers and remove what running made, not .venv
	@test ! -d .usboost || $(BIN)/python -m flows.local.services stop
	rm -rf data/{raw,prepared,features,results,work,checkpoints,tuning,metrics,embeddings} reports dvc.lock .usboost workspace paper results site

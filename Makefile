# Works on a bare clone with Python 3.11-3.13 and make: every target makes what it needs first.
#   make demo      search the quickstart study on this machine and print its front (continues if interrupted)
#   make test      every test that is not marked gpu or slow
#   make test-slow, make test-gpu, make lint, make docs, make generated, make shots, make dashboard, make clean
# PYTHON=python3.12 picks the interpreter; CHROMIUM=/path picks the browser of the dashboard's tests.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
DEMO_DB := demo/crossbreed.db
# One thread a process: the tests run in two, and thread counts change the last bits of float sums.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: demo test test-slow test-gpu lint docs generated shots dashboard clean
.DEFAULT_GOAL := demo

$(VENV)/.created:
	@scripts/make-venv $(VENV) $(PYTHON)
	@touch $@

$(VENV)/.core: pyproject.toml | $(VENV)/.created
	$(PIP) install -e .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.created
	$(PIP) install -e '.[test]'
	@touch $@ $(VENV)/.core

$(VENV)/.dev: pyproject.toml | $(VENV)/.created
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.test $(VENV)/.core

$(VENV)/.docs: pyproject.toml | $(VENV)/.created
	$(PIP) install -e '.[docs]'
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core
	@mkdir -p demo
	$(BIN)/crossbreed search examples/quickstart.yaml --db $(DEMO_DB)

test: $(VENV)/.test
	@CHROMIUM=$$(scripts/ensure-chromium) && POSTGRES_BIN=$$(scripts/ensure-postgres) && \
	export CHROMIUM POSTGRES_BIN && \
	$(PYTEST) -m "not gpu and not slow" -n 2 --dist loadfile

test-slow: $(VENV)/.test
	@CHROMIUM=$$(scripts/ensure-chromium) && POSTGRES_BIN=$$(scripts/ensure-postgres) && \
	export CHROMIUM POSTGRES_BIN && \
	$(PYTEST) -m "slow and not gpu" --timeout 3000

test-gpu: $(VENV)/.test
	$(PYTEST) -m gpu

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/_generate --check

# Pages of the documentation that are written from the code; lint fails where a committed one differs.
generated: $(VENV)/.core
	$(BIN)/python docs/_generate

# The pictures of the README and the documentation: two real searches, every page, both themes.
shots: $(VENV)/.test
	@CHROMIUM=$$(scripts/ensure-chromium) && export CHROMIUM && $(BIN)/python docs/_shots

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -b html docs site

dashboard: $(VENV)/.core
	$(BIN)/crossbreed dashboard --db $(DEMO_DB)

# Results of searches (demo/, crossbreed.db) are kept.
clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find crossbreed tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

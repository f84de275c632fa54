# `make demo` and `make test` need Python 3.11 or newer, pip and make; everything else is installed into .venv.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test test-slow browser lint bench paper clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       train on bundled data and show the result (about 2 minutes)"
	@echo "make test       all tests but the slow ones"
	@echo "make test-slow  the slow ones: real data, thousands of steps"
	@echo "make browser    Chromium for the tests of the HTML report (make test does it too)"
	@echo "make lint       ruff, pyright (also on the README's code and the examples), and the docstrings"
	@echo "make bench      benchmarks, all but one pinned to one core"
	@echo "make paper      the missing results of the paper into docs/results, and their report (hours)"
	@echo "Real data are read from the folder PARTITA_DATA; tests that need them are skipped without it."

.venv/installed: pyproject.toml
	@echo "Creating .venv and installing partita with its development tools ..."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: .venv/installed
	$(BIN)/partita demo --out out/demo

# Tests compile far more than they compute: unoptimized, unfused code makes them faster. XLA stops at a flag that it does
# not know, so all but the first are tried before. Programs are kept, so that no process compiles what another one has.
UNFUSED = --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 \
  --xla_llvm_disable_expensive_passes=true
KEPT = JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.pytest_cache/xla JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
test: .venv/installed browser
	if XLA_FLAGS="$(UNFUSED)" $(BIN)/python -c "import jax; jax.devices()" 2> /dev/null; then unfused="$(UNFUSED)"; fi; \
	$(KEPT) XLA_FLAGS="--xla_backend_optimization_level=0 $$unfused" $(BIN)/python -m pytest -n 2 --jaxtyping-packages=partita,paper,beartype.beartype -m "not slow" -rs --durations=20

test-slow: .venv/installed
	$(BIN)/python -m pytest -m slow -rA

# The page of results is tested in a browser. Without one these tests are skipped: nothing here fails.
APT = apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20
browser:
	@if command -v chromium > /dev/null && command -v chromedriver > /dev/null; then \
	  true; \
	elif ! command -v apt-get > /dev/null || [ "$$(id -u)" != 0 ]; then \
	  echo "No Chromium, and no apt-get as root to install it: the browser tests will be skipped."; \
	else \
	  echo "Installing Chromium for the browser tests ..."; \
	  { $(APT) update && DEBIAN_FRONTEND=noninteractive $(APT) install -y --no-install-recommends \
	    chromium chromium-driver fonts-dejavu-core; } > /dev/null 2>&1 \
	    || echo "That failed (no network?): the browser tests will be skipped."; \
	fi

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	@mkdir -p out && sed -n '/^```python$$/,/^```$$/{/^```/d;p}' README.md > out/readme.py
	$(BIN)/pyright examples out/readme.py
	$(BIN)/python -m pytest -q tests/test_docstrings.py

bench: .venv/installed
	$(BIN)/python -m benchmarks

paper: .venv/installed
	$(BIN)/python -m paper all --jobs 2 --out docs/results

clean:
	rm -rf .venv out

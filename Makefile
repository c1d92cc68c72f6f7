# Each target sets up .venv by itself, again whenever pyproject.toml has changed.
#   make PYTHON=/path/to/python3.12 test    to choose the interpreter of a new .venv

PYTHON ?= $(shell for name in python3.11 python3 python; do \
	command -v $$name >/dev/null 2>&1 && $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$name; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

# Rules of flake8-async that are left out, and why:
#   114, 128  they don't see actors: `run` is started through a ChildSpec and may hand its task_status on
#   123       groups are taken apart on purpose where errors leave through a door (runtime/groups.py)
#   124       a protocol's method is async for the sake of its other implementations
#   127       httpx is the HTTP client of this project
#   910-913   a function that has nothing to wait for need not make a checkpoint
# ASYNC900 (async generators that may hold a scope over a yield) is opt-in, and wanted.
UNWANTED := ASYNC114,ASYNC123,ASYNC124,ASYNC127,ASYNC128,ASYNC910,ASYNC911,ASYNC912,ASYNC913
ASYNC_RULES := --enable=ASYNC,ASYNC900 --disable=$(UNWANTED)
SOURCES := 'runtime/*.py' 'tools/*.py' 'actors/*.py' 'bench/*.py'
# Only files with a word of it are read: the checker takes half a second for each.
ASYNC := \b(async|await|trio)\b

.PHONY: help setup demo test lint bench soak clean

help:
	@echo "make demo    the whole loop on real files against a scripted model (no key needed)"
	@echo "make test    the tests, but for the soak tests"
	@echo "make lint    ruff, mypy --strict, flake8-async"
	@echo "make soak    the long tests"
	@echo "make bench   the measurements, in quick variants"
	@echo "make setup   just .venv"
	@echo "make clean   remove .venv and everything else that was made"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { \
		echo "atrio needs Python 3.11 or newer: there is no python3.11 on PATH, and python3 is older or missing." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=... $(MAKECMDGOALS)" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/atrio demo

test: setup
	$(BIN)/pytest -m "not soak" -n 2 --dist worksteal

soak: setup
	@$(BIN)/pytest -m soak -n 2 --dist worksteal; status=$$?; test $$status -eq 0 || \
		{ test $$status -eq 5 && echo "there are no soak tests yet"; }

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git grep -lE '$(ASYNC)' -- $(SOURCES) | xargs -P 2 -n 32 $(BIN)/flake8-async $(ASYNC_RULES)

# Quick: fewer events and sessions; bench/README.md says how to measure for real.
bench: setup
	@mkdir -p bench/out
	$(BIN)/python bench/overlap.py --pictures bench/out
	$(BIN)/python bench/stream.py --events 20000 --rounds 2 --no-memory
	$(BIN)/python bench/fanout.py --sessions 100

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis bench/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# make run     set up .venv and run the main job, run.py's defaults; ARGS="compressor=top_k seed=1" passes overrides on
# make test    set up .venv and run every check: format, lint, tests
# make test-slow   the long checks on top

PYTHON ?= $(shell command -v python3.11 || command -v python3)
STAMP := .venv/installed

.PHONY: run test test-slow format

run: $(STAMP)
	.venv/bin/python run.py $(ARGS)

test: $(STAMP)
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/python -m pytest

test-slow: $(STAMP)
	.venv/bin/python -m pytest -m slow

format: $(STAMP)
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# The exact versions that this project is tested with; pyproject.toml says which others may do.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# make run     set up .venv with [lab] and run the main job, run.py's defaults; ARGS="compressor=top_k seed=1" adds overrides
# make test    set up .venv with [dev] and run the checks: format, lint, types and tests; prints the ten slowest tests
# make test-slow   the slow tests
# make STUDY   the sweeps of a study (python -m sweeps STUDY $(ARGS)), then its page, tables and figures:
#   cifar10          ResNet-20 on all of CIFAR-10, with DATA_DIR=its folder; a day on one core
#   convex           all of madelon's convex experiments with three seeds; some ten minutes
#   lambda_vs_k      hard threshold against Top-k on two problems with ten seeds; twenty minutes
#   language         an LSTM and a Transformer on Python's reference, each method at its best of three or four rates, eight seeds; two hours on one core
#   league           28 compressors at three byte budgets on four tasks, each with tuned rates, eight seeds; some thirty hours
#   local            local steps, Top-k and thresholds with a small GPT at equal bytes and tokens, eight seeds; some six hours on one core
#   main             the main job with four methods and sixteen seeds; an hour
#   regret           regret of five methods on three problems with sixteen seeds; an hour on one core
#   why              measures of the finished runs of league and cifar10 beside their quality, and small trainings; an hour on one core
#   wikitext2        the small LSTM on the whole of WikiText-2, with DATA_DIR=its folder; some seven hours on one core
# make paper   the figures of the paper's sweeps, from their runs in OUTPUTS/paper: docs/guides/reproduce_the_paper.md
# make gpu     measure kernels, methods, steps and collectives on an NVIDIA GPU, and write their page; nine minutes.
#              It uses .venv or, without it, python3; GPU_PYTHON=... names another Python; ARGS="--parts step" runs one part
# make dist    the wheel total_error in dist/, with run.py, conf and their code
# make docs    the docs and docstrings as a site in build/site, with strict links
# make page-STUDY   the page alone, from existing runs; OUTPUTS=DIR names their folder

PYTHON ?= $(shell command -v python3.11 || command -v python3)
STAMP := .venv/installed
RESULTS := .venv/installed-results
DEV := .venv/installed-dev

STUDIES := cifar10 convex lambda_vs_k language league local main regret why wikitext2
.PHONY: run test test-slow format dist docs gpu paper $(STUDIES) $(addprefix page-,$(STUDIES))

run: $(STAMP)
	.venv/bin/python run.py $(ARGS)

# Each process collects all tests, in some ten seconds. Plugins are not loaded automatically: pytest would rewrite all modules of
# their packages, in each process.
test: $(DEV)
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 .venv/bin/python -m pytest -p xdist.plugin -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(DEV)
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 .venv/bin/python -m pytest -m slow -p xdist.plugin -n 2 --dist loadfile

# Finished runs are not run again.
convex lambda_vs_k language local main regret: $(RESULTS)
	.venv/bin/python -m sweeps $@ $(ARGS)
	.venv/bin/python -m results study $@

# Jobs may fail, for example if their data are missing: the table of their sweep names them, and the page lacks them.
cifar10 wikitext2: $(RESULTS)
	-.venv/bin/python -m sweeps $@ --keep-going $(ARGS)
	.venv/bin/python -m results study $@

# Its trainings depend on each other: pilot runs find the settings with which the rates are tuned. ARGS="--task madelon" runs
# one task of four.
league: $(RESULTS)
	.venv/bin/python -m results study league --run $(ARGS)

# Its page reads the finished runs of two other studies.
why: $(RESULTS)
	.venv/bin/python -m results archive cifar10 --unpack
	.venv/bin/python -m results archive league --unpack
	.venv/bin/python -m sweeps $@ $(ARGS)
	.venv/bin/python -m results study $@

# Pages and figures from the runs in OUTPUTS, without running anything.
OUTPUTS ?= outputs

$(addprefix page-,$(STUDIES)): page-%:
	.venv/bin/python -m results study $* --root $(OUTPUTS)

# The divided data of heterogeneity are another comparison, in a folder of their own.
paper:
	.venv/bin/python -m results figures $(OUTPUTS)/paper --across scope
	test ! -d $(OUTPUTS)/paper/heterogeneity || \
	.venv/bin/python -m results figures $(OUTPUTS)/paper/heterogeneity --across data.partition

# It installs nothing: machines with GPUs often have a torch of their own, and no network.
GPU_PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,$(shell command -v python3))

gpu:
	$(GPU_PYTHON) -m benchmarks.gpu $(ARGS)

dist: $(STAMP)
	.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# A link or anchor without a target is an error.
docs: .venv/docs
	.venv/bin/mkdocs build --strict

.venv/docs: $(STAMP)
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

format: $(DEV)
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# constraints.txt has the exact versions that are tested; pyproject.toml has the permitted ranges. pip would
# compile all modules on one core, in 40 s; compileall uses all cores and leaves out the packages' tests. Files
# for a newer Python cannot be compiled; these errors are ignored.
# A CPU build of torch does not load the compiled part of the package index's torchvision, and then neither torchvision nor
# transformers' Trainer can be imported: the shim declares what is missing.
$(STAMP): pyproject.toml constraints.txt data/torchvision_shim.py
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[lab]'
	.venv/bin/python data/torchvision_shim.py
	@.venv/bin/python -m compileall -qq -j 0 -x '/tests?/' .venv/lib || true
	touch $@

$(RESULTS) $(DEV): .venv/installed-%: $(STAMP)
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@

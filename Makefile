# make run     set up .venv and run the main job, run.py's defaults; ARGS="compressor=top_k seed=1" passes overrides on
# make test    set up .venv and run every check: format, lint, types, tests
# make test-slow   the long checks on top
# make small   every preset of experiment=small/ with three methods and three seeds, and their table; an hour or two
# make main_page   the main job with four methods and three seeds, and its page; half an hour
# make lambda_vs_k   hard threshold against Top-k on two problems with ten seeds, their page and figures; an hour
# make topk_convergence   the convergence of Top-k: 63 runs, their figures and table; under half an hour
# make autolrs AutoLRS beside a tuned constant rate, steps and a cosine, three seeds, and their table; half an hour
# make accordion   ACCORDION beside a hard threshold and Top-k, three seeds, their table and figure; a quarter of an hour
# make convex  all of madelon's convex experiments with three seeds, their figures and table; some ten minutes
# make three_parameters   scheme, coordinates, scope and feedback on two networks, their page and figure; half an hour
# make regret  regret of five methods on three problems with three seeds, and its page; a quarter of an hour
# make gpu     on a machine with an NVIDIA GPU: kernels, methods, steps and collectives there, and their page; nine minutes.
#              Without .venv it takes python3, if that has torch; GPU_PYTHON=... names another; ARGS="--parts step" some of it
# make docs    README's pages and docstrings as a site in build/site, with strict links
# make page-small   the page alone, from runs that are there; so for convex, main, lambda_vs_k, topk_convergence, autolrs,
#              accordion, three_parameters and regret; OUTPUTS=DIR reads runs from elsewhere

PYTHON ?= $(shell command -v python3.11 || command -v python3)
STAMP := .venv/installed

PAGES := convex small main lambda_vs_k topk_convergence autolrs accordion three_parameters regret
.PHONY: run test test-slow format convex small autolrs accordion three_parameters topk_convergence main_page lambda_vs_k regret
.PHONY: docs gpu $(addprefix page-,$(PAGES))

run: $(STAMP)
	.venv/bin/python run.py $(ARGS)

test: $(STAMP)
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/python -m pytest -n 2 --dist loadfile

test-slow: $(STAMP)
	.venv/bin/python -m pytest -m slow

# Two streams of runs side by side; what has finished before is not run again.
convex: $(STAMP)
	$(MAKE) --no-print-directory -j2 convex-top_k convex-hard_threshold
	$(MAKE) --no-print-directory page-convex

CONVEX := .venv/bin/python run.py -m output=outputs/convex tracker=none ++data.download=true seed=0,1,2 $(ARGS)
STARS := convex/madelon_gd_star_20,convex/madelon_gd_star_100

convex-top_k convex-hard_threshold: convex-%: $(STAMP)
	$(CONVEX) experiment=convex/madelon_sgd compressor=$*,$(if $(filter top_k,$*),none,random_k)
	$(CONVEX) experiment=convex/heterogeneity data.partition=iid,by_label,dirichlet compressor=$*
	$(CONVEX) experiment=$(STARS) compressor=$*

# Two methods side by side; presets whose data are missing say so and leave the others alone.
SMALL := $(patsubst conf/experiment/%.yaml,%,$(wildcard conf/experiment/small/*.yaml))
SMALL_RUN := .venv/bin/python run.py -m output=outputs/small tracker=none seed=0,1,2 $(ARGS)

small: $(STAMP)
	-$(MAKE) --no-print-directory --keep-going -j2 $(addprefix small-run-,$(subst /,-,$(SMALL)))
	$(SMALL_RUN) experiment=small/lstm compressor=hard_threshold compressor.threshold=0.004619 # Top-1 %'s bytes, by results.budget
	$(MAKE) --no-print-directory page-small

small-run-small-%: $(STAMP)
	$(SMALL_RUN) experiment=small/$* compressor=none,top_k,hard_threshold

JOBLIB := tracker=none hydra/launcher=joblib hydra.launcher.n_jobs=2

# The second round leaves oneDNN and torch the loops of an older processor.
MAIN := .venv/bin/python run.py -m seed=0,1,2 processes=1 $(JOBLIB) $(ARGS)
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2

main_page: $(STAMP)
	$(MAIN) output=outputs/main compressor=none,hard_threshold
	$(MAIN) output=outputs/main compressor=top_k,random_block budget.density=0.01
	$(AVX2) $(MAIN) output=outputs/main_avx2 compressor=none,hard_threshold
	$(AVX2) $(MAIN) output=outputs/main_avx2 compressor=top_k,random_block budget.density=0.01
	$(MAKE) --no-print-directory page-main

lambda_vs_k: $(STAMP)
	for sweep in lambda_vs_k lambda_vs_k_matched lambda_vs_k_dense; do \
	  .venv/bin/python run.py -m +sweeps=$$sweep $(JOBLIB) $(ARGS) || exit 1; \
	done
	.venv/bin/python run.py -m +sweeps=lambda_vs_k_madelon data.download=true $(JOBLIB) $(ARGS)
	$(MAKE) --no-print-directory page-lambda_vs_k

topk_convergence: $(STAMP)
	.venv/bin/python run.py -m +sweeps=topk_convergence_dense $(JOBLIB) $(ARGS)
	.venv/bin/python run.py -m +sweeps=topk_convergence $(JOBLIB) $(ARGS)
	$(MAKE) --no-print-directory page-topk_convergence

# Constant rates are tuned with another seed; the presets hold the best. Half of digits' 400 steps are 8.9 epochs.
AUTOLRS_RUN := .venv/bin/python run.py -m tracker=none hydra/launcher=joblib hydra.launcher.n_jobs=2 $(ARGS)
AUTOLRS_TUNE := $(AUTOLRS_RUN) output=outputs/autolrs_tuning seed=3
AUTOLRS := $(AUTOLRS_RUN) output=outputs/autolrs seed=0,1,2
SEARCH := schedule=autolrs schedule.tau=50 schedule.tau_max=200 schedule.trial_steps=5

autolrs: $(STAMP)
	$(AUTOLRS_TUNE) experiment=autolrs/resnet20 optimizer.lr=0.01,0.03,0.1,0.3,1
	$(AUTOLRS_TUNE) experiment=autolrs/lstm optimizer.lr=1,3,10,30,100
	$(AUTOLRS) experiment=autolrs/resnet20 schedule=constant,cosine
	$(AUTOLRS) experiment=autolrs/resnet20 schedule=warmup_step 'schedule.milestones=[8.9,13.35]'
	$(AUTOLRS) experiment=autolrs/resnet20 $(SEARCH) schedule.low=0.003 schedule.high=3
	$(AUTOLRS) experiment=autolrs/lstm schedule=constant,cosine
	$(AUTOLRS) experiment=autolrs/lstm schedule=warmup_step 'schedule.milestones=[1.277,1.915]'
	$(AUTOLRS) experiment=autolrs/lstm $(SEARCH) schedule.low=0.3 schedule.high=300
	$(MAKE) --no-print-directory page-autolrs

ACCORDION := .venv/bin/python run.py -m experiment=accordion/resnet20 output=outputs/accordion seed=0,1,2 $(JOBLIB)

accordion: $(STAMP)
	$(ACCORDION) compressor=none,hard_threshold $(ARGS)
	$(ACCORDION) compressor=top_k budget.density=0.001,0.01 $(ARGS)
	$(ACCORDION) compressor=accordion compressor.period=1 $(ARGS)
	$(MAKE) --no-print-directory page-accordion

# Two jobs at a time; dense first, so that there is something to compare with from the start. A job that fails is
# named in the sweep's own table, and missing on the page.
THREE_PARAMETERS := $(addprefix three_parameters_,dense random top_k)

three_parameters: $(STAMP)
	-for sweep in $(THREE_PARAMETERS); do \
	  .venv/bin/python run.py -m +sweeps=$$sweep hydra/launcher=joblib hydra.launcher.n_jobs=2 tracker=none $(ARGS); \
	done
	$(MAKE) --no-print-directory page-three_parameters

# ACCORDION has settings of its own, which others would not know. Its first choice comes after two epochs, when the language
# model's training is over.
REGRET := .venv/bin/python run.py -m $(JOBLIB)

regret: $(STAMP)
	for problem in resnet20 lstm 'madelon data.download=true'; do \
	  $(REGRET) +sweeps=regret_$$problem $(ARGS) || exit 1; \
	done
	for problem in resnet20 'madelon data.download=true'; do \
	  $(REGRET) +sweeps=regret_$$problem compressor=accordion compressor.period=1 $(ARGS) || exit 1; \
	done
	$(MAKE) --no-print-directory page-regret

# It installs nothing: machines with GPUs often have a torch of their own, and no network.
GPU_PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,$(shell command -v python3))

gpu:
	$(GPU_PYTHON) -m benchmarks.gpu $(ARGS)

# Pages and figures from the runs in OUTPUTS, without running anything.
OUTPUTS ?= outputs
PAGE := .venv/bin/python -m results
LAMBDA_VS_K := $(OUTPUTS)/lambda_vs_k $(OUTPUTS)/lambda_vs_k_madelon

page-convex:
	$(PAGE).convex $(OUTPUTS)/convex --figures results/figures --table results/convex.md

page-small:
	$(PAGE).small $(OUTPUTS)/small --table results/small.md

page-main:
	$(PAGE).main $(OUTPUTS)/main --other-loops $(OUTPUTS)/main_avx2 --table results/main.md

page-lambda_vs_k:
	$(PAGE).lambda_vs_k $(LAMBDA_VS_K) --table results/lambda_vs_k.md
	$(PAGE).tables $(LAMBDA_VS_K) --to results/lambda_vs_k_table
	$(PAGE).figures $(LAMBDA_VS_K) --to results/figures/lambda_vs_k \
		--only quality_bytes,total_error_bytes,density,quality_density,suboptimality

page-topk_convergence:
	$(PAGE).topk_convergence $(OUTPUTS)/topk_convergence \
		--figures results/figures/topk_convergence --table results/topk_convergence_table.md
	$(PAGE).header results/topk_convergence_table.md results/topk_convergence.md

page-autolrs:
	$(PAGE).autolrs $(OUTPUTS)/autolrs --tuning $(OUTPUTS)/autolrs_tuning \
		--figures results/figures/autolrs --table results/autolrs_table.md
	$(PAGE).header results/autolrs_table.md results/autolrs.md docs/papers/autolrs.md

page-accordion:
	$(PAGE).accordion $(OUTPUTS)/accordion --figures results/figures --table results/accordion_table.md
	$(PAGE).header results/accordion_table.md results/accordion.md

page-three_parameters:
	$(PAGE).three_parameters $(OUTPUTS)/three_parameters \
		--table results/three_parameters.md --figures results/figures/three_parameters
	$(PAGE).header results/three_parameters.md docs/papers/three_parameters.md

page-regret:
	$(PAGE).regret $(OUTPUTS)/regret --table results/regret.md

# Links and anchors that lead nowhere end it.
docs: .venv/docs
	.venv/bin/mkdocs build --strict

.venv/docs: $(STAMP)
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

format: $(STAMP)
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# The exact versions that this project is tested with; pyproject.toml says which others may do.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

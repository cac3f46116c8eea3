# make run     set up .venv and run the main job, run.py's defaults; ARGS="compressor=top_k seed=1" passes overrides on
# make test    set up .venv and run every check: format, lint, tests
# make test-slow   the long checks on top
# make small   every preset of experiment=small/ with three methods and three seeds, and their table; an hour or two
# make topk_convergence   the convergence of Top-k: 63 runs, their figures and table; under half an hour
# make autolrs AutoLRS beside a tuned constant rate, steps and a cosine, three seeds, and their table; half an hour
# make accordion   ACCORDION beside a hard threshold and Top-k, three seeds, their table and figure; a quarter of an hour
# make convex  all of madelon's convex experiments with three seeds, their figures and table; some ten minutes
# make three_parameters   scheme, coordinates, scope and feedback on two networks, their page and figure; half an hour

PYTHON ?= $(shell command -v python3.11 || command -v python3)
STAMP := .venv/installed

.PHONY: run test test-slow format convex small autolrs accordion three_parameters topk_convergence

run: $(STAMP)
	.venv/bin/python run.py $(ARGS)

test: $(STAMP)
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/python -m pytest -n 2 --dist loadfile

test-slow: $(STAMP)
	.venv/bin/python -m pytest -m slow

# Two streams of runs side by side; what has finished before is not run again.
convex: $(STAMP)
	$(MAKE) --no-print-directory -j2 convex-top_k convex-hard_threshold
	.venv/bin/python -m results.convex outputs/convex --figures results/figures --table results/convex.md

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
	.venv/bin/python -m results.small outputs/small --table results/small.md

small-run-small-%: $(STAMP)
	$(SMALL_RUN) experiment=small/$* compressor=none,top_k,hard_threshold

JOBLIB := tracker=none hydra/launcher=joblib hydra.launcher.n_jobs=2

topk_convergence: $(STAMP)
	.venv/bin/python run.py -m +sweeps=topk_convergence_dense $(JOBLIB) $(ARGS)
	.venv/bin/python run.py -m +sweeps=topk_convergence $(JOBLIB) $(ARGS)
	.venv/bin/python -m results.topk_convergence outputs/topk_convergence \
		--figures results/figures/topk_convergence --table results/topk_convergence_table.md
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
	.venv/bin/python -m results.autolrs outputs/autolrs --tuning outputs/autolrs_tuning \
		--figures results/figures/autolrs --table results/autolrs_table.md

ACCORDION := .venv/bin/python run.py -m experiment=accordion/resnet20 output=outputs/accordion seed=0,1,2 $(JOBLIB)

accordion: $(STAMP)
	$(ACCORDION) compressor=none,hard_threshold $(ARGS)
	$(ACCORDION) compressor=top_k budget.density=0.001,0.01 $(ARGS)
	$(ACCORDION) compressor=accordion compressor.period=1 $(ARGS)
	.venv/bin/python -m results.accordion outputs/accordion \
		--figures results/figures --table results/accordion_table.md

# Two jobs at a time; dense first, so that there is something to compare with from the start. A job that fails is
# named in the sweep's own table, and missing on the page.
THREE_PARAMETERS := $(addprefix three_parameters_,dense random top_k)

three_parameters: $(STAMP)
	-for sweep in $(THREE_PARAMETERS); do \
	  .venv/bin/python run.py -m +sweeps=$$sweep hydra/launcher=joblib hydra.launcher.n_jobs=2 tracker=none $(ARGS); \
	done
	.venv/bin/python -m results.three_parameters outputs/three_parameters \
	  --table results/three_parameters.md --figures results/figures/three_parameters

format: $(STAMP)
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# The exact versions that this project is tested with; pyproject.toml says which others may do.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

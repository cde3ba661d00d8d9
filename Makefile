# Few verbs. Everything runs from .venv, which `make` builds from pinned versions.
# PYTHON=… chooses the interpreter, otherwise the newest suitable one is taken.
BIN := .venv/bin

.PHONY: demo test prove quick soak check bench faults screenshots recording docs chaos lock dist clean

demo: .venv/ready
	@$(BIN)/tfmux demo

# Tests start Python a thousand times: without compiled files each compiles the program anew.
unexport PYTHONDONTWRITEBYTECODE

# Tests that failed, five at most, run once more (.ci/pytest).
# Most tests wait for something: eight at a time keep two processors busy. JOBS=0 runs one at a time.
JOBS ?= 8
PYTEST = .ci/pytest $(BIN)/pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder
# Each promise of README.md and SECURITY.md, for real, and all that starts no process.
test: .venv/ready
	@$(PYTEST) --part test $(TESTS)

# All the other tests: attacks, variants of Slurm and SSH, chaos.
prove: .venv/ready
	@$(PYTEST) --part prove $(TESTS)

# Tests that start no process: no root, no SSH, no terminal, no TensorFlow. Each worker imports all: three.
quick: .venv/ready
	@.ci/pytest $(BIN)/pytest -n 3 -W error::ResourceWarning tests/unit tests/screens

# All tests, with large budgets, new random examples and what `make chaos` has; hours.
soak: export SOAK = 1
soak: .venv/ready
	@$(PYTEST) tests

# All but what runs on hosts, which are Linux.
ON_MACOS := tui $(filter-out launcher.agent launcher.on_host,\
  $(subst /,.,$(patsubst %/__init__.py,%,$(wildcard launcher/*/__init__.py))) launcher.api)
check: .venv/ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin --follow-imports silent \
	  --no-warn-unreachable $(addprefix -p ,$(ON_MACOS))
	@$(BIN)/lint-imports

# Ratios to something else measured in the same run; nothing is asserted. ROUNDS=3 BENCH="kill flood" for less.
ROUNDS ?= 5
bench: .venv/ready
	@$(BIN)/python -m bench --rounds $(ROUNDS) $(BENCH)

# Sixty faults planted in a copy, drawn by lot (SEED=…: others), and the tests that find each; hours.
SEED ?= 53
faults: .venv/ready
	@$(BIN)/python -m bench.faults record
	@$(BIN)/python -m bench.faults plant --seed $(SEED)

# Two hundred random sequences of faults on the testbed of four hosts, and a disk that hangs for a minute;
# needs root, takes its time.
chaos: .venv/ready
	@SOAK=1 CHAOS=200 $(BIN)/pytest tests/hosts/test_chaos.py tests/hosts/attacks/test_frozen_disks.py

screenshots: .venv/ready
	@$(BIN)/python -m docs.screenshots

# The README's moving picture: a run on the testbed of four hosts; needs root, ip and sshd. TFMUX_TEST_DATA
# names a folder with the digits of MNIST.
recording: .venv/ready
	@$(BIN)/python -m docs.recording

# The manual as a site, in build/site; a link that leads nowhere is an error.
docs: .venv/ready
	@$(BIN)/python -m docs.site build/site

# A virtual environment is complete only when its stamp is there: an install that was cut
# short leaves none, and the next `make` finishes it.
.venv/ready: requirements.lock pyproject.toml
	@PYTHON='$(PYTHON)' .ci/interpreter >/dev/null
	@echo "building .venv from requirements.lock (once; TensorFlow is about 600 MB)"
	@"$$(PYTHON='$(PYTHON)' .ci/interpreter)" -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# All hashes that the index gives, so that the lock file is good for every platform.
lock:
	@rm -rf .venv/lock && "$$(PYTHON='$(PYTHON)' .ci/interpreter)" -m venv .venv/lock
	@.venv/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools==7.6.2
	@.venv/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --output-file .venv/lock/requirements.lock requirements.in
	@(echo "# Names, versions and hashes; made by 'make lock'."; \
	  cat .venv/lock/requirements.lock) > requirements.lock
	@rm -rf .venv/lock

# Wheel and sdist, with their checksums; VERSION=… must be that of pyproject.toml.
dist: .venv/ready
	@test "$(VERSION)" = "" || $(BIN)/hatchling version | grep -qxF "$(VERSION)" || \
	  { echo "pyproject.toml says $$($(BIN)/hatchling version), not $(VERSION)" >&2; exit 2; }
	@rm -rf dist
	@$(BIN)/hatchling build
	@cd dist && sha256sum * > SHA256SUMS

clean:
	@rm -rf .venv build dist

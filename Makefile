# Spillway's commands. `make demo` and `make test` need nothing but Python >= 3.10, a C++20 compiler and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Only what is imported is worth compiling to bytecode, and an import does that. With this variable it
# would not, and every process that the tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/pip_progress.py --no-compile
# With the folders, whose times a deletion changes.
SOURCES := $(shell find cpp cmake python -name __pycache__ -prune -o -type d -print 2>/dev/null) \
           $(shell find cpp cmake python -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.py' -o -name '*.pyi' -o -name '*.cmake' \) 2>/dev/null) \
           $(shell find examples -type f -not -name '*.pyc' -not -name '*.md' -not -name '*.svg' 2>/dev/null) \
           CMakeLists.txt cpp/CMakeLists.txt pyproject.toml
CPP_FILES = $(shell find cpp tests/native benchmarks -name '*.cpp' -o -name '*.h')

# The folder below build/ in which the installed extension was compiled has the name of its tag.
WHEEL_TAG = from importlib.metadata import distribution; \
            print(distribution('spillway-sim').read_text('WHEEL').split('Tag: ')[1].split()[0])

# The checks that take seconds; all of them run, whichever fails.
QUICK_CHECKS := check-format check-lint check-language check-types check-stubs check-stubtest

# Installs a file into an empty environment and runs what users do first.
define run_installed
	$(PYTHON) -m venv build/dist/venv
	build/dist/venv/bin/pip install --quiet --no-compile --disable-pip-version-check $(1)
	cd build && dist/venv/bin/spillway run ../examples/noisy_neighbor.yaml > /dev/null
	cd build && dist/venv/bin/python -c "import spillway; print(spillway.build_info)"
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full test-native test-allocation test-asan test-tsan test-sanitized test-sanitized-asan test-sanitized-tsan test-python test-every test-long test-live test-fuzz shares fuzz-readers portability specimens command-lines recordings weekly mutants smoke test-dist test-dist-full bench bench-check build-check experiments docs docs-links check $(QUICK_CHECKS) analyze format stubs golden notebooks notebooks-check clean

help:  ## Print this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-20s %s\n", $$1, $$2}'

setup: $(VENV)/.dev  ## Make .venv with everything for development; three minutes of processor time

demo: $(VENV)/.installed  ## Set up and show a noisy neighbor without and with a gateway
	@$(BIN)/python examples/noisy_neighbor_demo.py --pictures examples/pictures

test: test-native test-python  ## What takes minutes at most: C++ tests and quick Python tests

# Every test of `make test` is in `make test-full`: there the C++ tests run with sanitizers instead of without.
test-full: test-asan test-allocation test-every smoke  ## All tests but the long ones, with sanitizers and many random cases
	$(BIN)/python tests/fuzz/fuzz.py --part 10

test-native: $(VENV)/.dev  ## C++ tests, built from the object files of the installed extension
	@folder="build/$$($(BIN)/python -c "$(WHEEL_TAG)")" && \
	  $(BIN)/cmake --build "$$folder" --target native_tests && \
	  $(BIN)/ctest --test-dir "$$folder" --output-on-failure

test-allocation: $(VENV)/.dev  ## Of the C++ tests those that count allocations, which sanitizers cannot run
	@folder="build/$$($(BIN)/python -c "$(WHEEL_TAG)")" && \
	  $(BIN)/cmake --build "$$folder" --target spillway_allocation_tests && \
	  $(BIN)/ctest --test-dir "$$folder" --output-on-failure --tests-regex "^allocation/"

test-asan: $(VENV)/.dev  ## C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/cmake --preset asan > build/asan-configure.log || (cat build/asan-configure.log; false)
	$(BIN)/cmake --build --preset asan
	$(BIN)/ctest --preset asan

test-tsan: $(VENV)/.dev  ## C++ tests under ThreadSanitizer
	$(BIN)/cmake --preset tsan > build/tsan-configure.log || (cat build/tsan-configure.log; false)
	$(BIN)/cmake --build --preset tsan
	$(BIN)/ctest --preset tsan

test-sanitized: test-sanitized-asan test-sanitized-tsan  ## Python tests of policies, sessions and threads against extensions with sanitizers; an hour

test-sanitized-asan: $(VENV)/.dev  ## Of these, with AddressSanitizer and UndefinedBehaviorSanitizer; or TESTS="tests/router -k burst"
	$(BIN)/python tools/test_sanitized.py asan $(TESTS)

test-sanitized-tsan: $(VENV)/.dev  ## Of these, with ThreadSanitizer
	$(BIN)/python tools/test_sanitized.py tsan $(TESTS)

test-python: $(VENV)/.dev  ## Python tests under half a second each, with few random cases; or TESTS="tests/router -k burst"
	$(BIN)/python -m pytest $(or $(TESTS),-m "not slow and not long" -n 2)

test-every: $(VENV)/.dev  ## Python tests but the long ones, with as many random cases as continuous integration
	SPILLWAY_TEST_PROFILE=ci $(BIN)/python -m pytest -m "not long" -n 2 --dist loadfile --max-worker-restart 0 --durations 20 \
		-o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true  # a test that hangs fails

test-long: $(VENV)/.dev  ## Theory tests to 1%; minutes
	$(BIN)/python -m pytest -m long -n 2

test-live: $(VENV)/.dev  ## k6, aiperf, Envoy, litellm and Prometheus against a live fleet, those that are on the PATH; minutes
	$(BIN)/python -m pytest tests/python/live/test_tools.py -m long -rs

shares: $(VENV)/.dev  ## How often findings name the causes of public threads, and of healthy runs; minutes
	$(BIN)/python -m pytest -q -s tests/threads tests/python/findings/test_healthy.py

test-fuzz: $(VENV)/.dev  ## Thousands of random simulations through every check and view; twenty minutes
	$(BIN)/python tests/fuzz/fuzz.py $(FUZZ)

fuzz-readers: $(VENV)/.dev  ## Damaged files through every reader, SECONDS=60 of processor time each; or READERS="trace result"
	$(BIN)/python tests/fuzz/fuzz_readers.py --seconds $(or $(SECONDS),60) $(READERS)

weekly: $(VENV)/.dev  ## What takes too long for every change, one target after the other; TARGETS="analyze test-long"
	$(BIN)/python tools/weekly.py $(TARGETS)

portability: $(VENV)/.dev  ## Equal outcomes with other compilers, levels of optimization, C libraries; half an hour
	$(BIN)/python tools/portability.py $(VARIANTS)

command-lines: $(VENV)/.dev  ## Parse the command lines that are written for vLLM with its own parser; needs a package index, gigabytes
	$(BIN)/python tools/command_lines.py $(VERSIONS)

recordings: $(VENV)/.dev  ## Record vLLM's own scheduler on fresh random cases, compare every step; needs a package index, gigabytes
	$(BIN)/python tests/parity/live/record.py --out build/recordings $(RECORDINGS)
	$(BIN)/spillway validate vllm-scheduler build/recordings

specimens: $(VENV)/.tools  ## Compare the files of the newest load generators with the stored specimens; needs a package index
	$(BIN)/python -m tools.specimens $(or $(SPECIMENS),--newest)

mutants: $(VENV)/.dev  ## Put 60 small faults into a copy of the core, count those that `make test` notices; hours
	$(BIN)/python tools/mutants.py $(MUTANTS)

smoke: $(VENV)/.dev  ## Every benchmark and experiment at its smallest size
	$(BIN)/python tools/smoke.py

test-dist: $(VENV)/.dev  ## Check that the sdist builds what is installed here; install that in an empty environment, run it
	rm -rf build/dist
	$(BIN)/python -m build --sdist --no-isolation --outdir build/dist .
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/dist .
	$(BIN)/python tools/check_sdist.py build/dist/*.tar.gz build/dist/*.whl "build/$$($(BIN)/python -c "$(WHEEL_TAG)")"
	$(call run_installed,build/dist/*.whl)

test-dist-full: $(VENV)/.dev  ## Build the sdist, compile all of it and install that in an empty environment, run it
	rm -rf build/dist
	$(BIN)/python -m build --sdist --outdir build/dist .
	$(call run_installed,build/dist/*.tar.gz)

.PHONY: release-check
release-check: test-dist  ## What a release needs up to its upload, after the tag TAG=v1.2.3 too; minutes
	$(BIN)/python tools/release.py build/dist/*.tar.gz build/dist/*.whl $(if $(TAG),--tag $(TAG))

check: $(VENV)/.dev  ## Formatters, linters, types, stubs, language
	@$(MAKE) --no-print-directory --keep-going $(QUICK_CHECKS)
	$(BIN)/python tools/run_clang_tidy.py build/tidy

$(QUICK_CHECKS): $(VENV)/.dev

check-format:
	@formatted=true; \
	  $(BIN)/clang-format --dry-run --Werror $(CPP_FILES) || formatted=false; \
	  $(BIN)/ruff format --check . || formatted=false; \
	  $$formatted || (echo "Run \`make format\`." && false)

check-lint:
	$(BIN)/ruff check .

check-language:
	$(BIN)/python tools/check_language.py

check-types:
	$(BIN)/mypy

check-stubs:
	$(BIN)/python tools/generate_stubs.py --check

check-stubtest:
	$(BIN)/python -m mypy.stubtest spillway._core --allowlist tools/stubtest_allowlist.txt

analyze: $(VENV)/.dev  ## Clang's static analyzer; ten minutes
	$(BIN)/python tools/run_clang_tidy.py build/tidy --analyze

format: $(VENV)/.dev  ## Format everything
	@$(BIN)/clang-format -i $(CPP_FILES)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

stubs: $(VENV)/.dev  ## Write the type stubs of the compiled core
	$(BIN)/python tools/generate_stubs.py

golden: $(VENV)/.dev  ## Write the golden logs and the digests; the difference shows a change of behavior
	$(BIN)/python tests/golden/regenerate.py

notebooks: $(VENV)/.dev  ## Execute the notebooks and store them with their outputs
	$(BIN)/python tools/render_notebooks.py

notebooks-check: $(VENV)/.dev  ## Execute the notebooks and compare the outputs with the stored ones
	$(BIN)/python tools/render_notebooks.py --check

docs: $(VENV)/.dev $(VENV)/.docs  ## Build the documentation site into build/docs/html; every warning is an error
	$(BIN)/python tools/documentation/build.py

docs-links: $(VENV)/.dev $(VENV)/.docs  ## Check the addresses of other servers that the documentation links
	$(BIN)/python tools/documentation/build.py --links

bench-check: $(VENV)/.dev  ## Compare the instructions of every scenario with the committed ones; RENEW="reason" replaces them
	$(BIN)/python benchmarks/check.py $(if $(RENEW),--renew "$$RENEW")

build-check: $(VENV)/.tools  ## Compile the core without ccache and compare the processor time with a limit; minutes
	$(BIN)/python tools/build_check.py

bench: $(VENV)/.dev  ## Measure everything and write benchmarks/README.md; a quarter of an hour on a quiet machine
	$(BIN)/python benchmarks/make_readme.py --full

experiments: $(if $(NAME),$(VENV)/.dev)  ## List the experiments, or run NAME=one and write its README.md; minutes
ifdef NAME
	$(BIN)/python -m experiments.$(NAME).run $(ARGS)
else
	@awk 'FNR == 1 { split(FILENAME, part, "/"); sub(/^"""/, ""); printf "%-22s %s\n", part[2], $$0 }' experiments/*/run.py
endif

clean:  ## Remove everything that was built
	rm -rf $(VENV) build dist python/spillway/*.so

# Installed once for users (.installed), with the development tools on top (.dev); again when a source changes. Both are
# as old as the beginning of the build (.begun), so that a source that is edited during a build counts as changed.
$(VENV)/bin/pip:
	@echo "Setting up $(VENV), then compiling the C++ core: once, one to two minutes on two cores, less on more."
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p build

# Without build isolation, so that object files are kept between builds.
$(VENV)/.tools: pyproject.toml | $(VENV)/bin/pip
	@echo "Installing the build tools into $(VENV)"
	@$(PIP_INSTALL) "scikit-build-core>=0.12" "pybind11>=3.0.3,<4" "cmeel-eigen>=3.4.0.2,<4" \
	  "cmake>=3.24" "ninja>=1.11"
	@touch $@

$(VENV)/.installed: $(SOURCES) $(VENV)/.tools
	@echo "Building Spillway: what has changed since the last time is compiled"
	@touch $(VENV)/.begun
	@$(PIP_INSTALL) --no-build-isolation ".[plot]"
	@mv $(VENV)/.begun $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.dev
	@$(PIP_INSTALL) --no-build-isolation ".[docs]"
	@touch $@

$(VENV)/.dev: $(SOURCES) $(VENV)/.tools
	@echo "Building Spillway for development: what has changed since the last time is compiled"
	@touch $(VENV)/.begun
	@$(PIP_INSTALL) --no-build-isolation ".[dev]"
	@touch -r $(VENV)/.begun $(VENV)/.installed
	@mv $(VENV)/.begun $@

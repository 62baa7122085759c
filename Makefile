# One target for each thing that is done with ontempo; `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Everything is built and tested in one profile, so that dependencies are compiled once.
RELEASE := --release
# What this machine can build beyond what every machine can. It is looked up when make starts:
# `make test` installs packages first, then starts a make of its own.
FEATURES := $(shell scripts/features)
FUZZ := $(wildcard crates/*/fuzz)
# What the tests print, and what they skip.
TESTED := target/tested

# The name of a step, before it begins, and when that is. Steps of several lanes run side by side; a
# lane that has ended well has a line without a name.
LANE := alone
line = mkdir -p $(TESTED); printf '%s\t%s\t%s\n' "$(LANE)" "$(1)" "$$(date +%s)" >> $(TESTED)/steps
step = @echo "== $(1)"; $(call line,$(1))

# The test programs of Rust, as scripts/run-tests lists them: those of the crates, and all others.
PROGRAMS := $(TESTED)/programs
OTHERS := $(TESTED)/other-programs

# Installs, and compiles meanwhile; fails if either does.
while_installing = $(1) & install=$$!; trap 'kill $$install 2>/dev/null || true' EXIT; \
	code=0; $(2) || code=$$?; wait $$install && exit $$code

# Steps come one after the other; what runs side by side is said by scripts/beside and scripts/run-tests.
.NOTPARALLEL:

# What is compiled: a change of it builds anew.
RUST_SOURCES := $(shell find crates -name target -prune -o \( -name '*.rs' -o -name Cargo.toml -o -path '*/bpf/*' \) -print)

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: $(VENV)/built ## Build `ontempo` and `ontempo-lab` into .venv/bin.

.PHONY: dist
dist: build ## Make a wheel and an archive in dist/, install them anew.
	scripts/make-dist $(VENV)
	scripts/check-dist $(PYTHON)

# Not part of `make test`: it needs a Debian mirror.
.PHONY: check-deb
check-deb: ## Try the package of `make dist` in a bare Debian 12, as root.
	scripts/check-deb

.PHONY: demo
demo: build ## Carry a film over five networks by six transports; show the page.
	@open=--no-open; \
	if [[ -n "$${DISPLAY:-}$${WAYLAND_DISPLAY:-}" || "$$(uname)" == Darwin ]]; then open=--open; fi; \
	$(BIN)/ontempo-lab demo $$open

# Crates that the program needs, and that no system package changes.
WITHOUT_PACKAGES := $(addprefix -p ontempo-,unified page simulator session relay rsvpd qos probe)

.PHONY: test
test: machine ## Run every check and every test, and count them.
	@echo "== system packages, and what compiles without them"
	@$(call while_installing,scripts/install-system-packages,cargo build $(RELEASE) --locked $(WITHOUT_PACKAGES))
	@rm -rf $(TESTED); mkdir -p $(TESTED)
	@code=0; ONTEMPO_SKIPS=$(CURDIR)/$(TESTED)/skips $(MAKE) --no-print-directory every-test || code=$$?; \
	$(PYTHON) scripts/count-tests $(TESTED) $$code

# First the programs and the tests of the crates are compiled. Then the tests run, of which most wait, and
# beside them, at the lowest priority, what only computes: what compiles in one lane, as one cargo waits for
# another, and the rest in the other.
.PHONY: every-test
every-test:
	$(MAKE) --no-print-directory LANE=first first-lane
	scripts/beside "$(MAKE) --no-print-directory LANE=tests tests-lane" \
		"$(MAKE) --no-print-directory LANE=cargo cargo-lane || { touch $(OTHERS).failed; exit 1; }" \
		"$(MAKE) --no-print-directory LANE=checks checks-lane"

.PHONY: first-lane
first-lane: build build-rust-tests
	@$(call line,)

# All run, whatever fails.
.PHONY: tests-lane
tests-lane:
	@code=0; for step in run-tests test-python run-other-tests; do \
		$(MAKE) --no-print-directory $$step || code=$$?; \
	done; exit $$code
	@$(call line,)

.PHONY: cargo-lane
cargo-lane: build-other-tests lint test-fuzz check-rustdoc check-portable
	@$(call line,)

.PHONY: checks-lane
checks-lane: check-format check-docs check-claims
	@$(call line,)

.PHONY: bench
bench: machine ## Measure speed beside ns-2, with many flows, with films; memory.
	cargo bench $(FEATURES) -p ontempo-cli --bench against_ns2
	cargo bench -p ontempo-simulator --bench carriers

.PHONY: bench-emulator
bench-emulator: machine ## Measure how exact the emulated network is, as root.
	cargo bench $(FEATURES) -p ontempo-cli --bench accuracy

.PHONY: soak
soak: machine ## Watch memory and descriptors under load for 30 minutes, as root.
	cargo bench $(FEATURES) --workspace --bench soak

.PHONY: bench-delivery
bench-delivery: machine ## Measure delivery beside quinn and TCP, and the UDP driver.
	cargo bench -p ontempo-transport --bench deliver
	cargo bench -p ontempo-udp --bench udp

.PHONY: bench-cost
bench-cost: machine ## Measure what a stream costs the processor, beside SRT.
	cargo bench $(FEATURES) -p ontempo-cli --bench cost

.PHONY: bench-gateway
bench-gateway: machine ## Measure 100 MB through a pair of gateways beside directly.
	cargo bench $(FEATURES) -p ontempo-cli --bench gateway

.PHONY: bench-relay
bench-relay: build ## Measure how many viewers a relay bears.
	cargo bench -p ontempo-relay --bench relay -- --program $(CURDIR)/$(BIN)/ontempo

.PHONY: bench-idle
bench-idle: build ## Measure what an idle connection holds, and what holds it.
	cargo bench -p ontempo-transport --bench idle
	cargo bench -p ontempo-relay --bench relay -- --idle --program $(CURDIR)/$(BIN)/ontempo

.PHONY: bench-reservations
bench-reservations: machine ## Measure what 10,000 reservations cost a router, as root.
	cargo bench -p ontempo-reservation --bench refresh
	cargo bench -p ontempo-rsvpd --bench aggregates

.PHONY: bench-page
bench-page: machine ## Measure how many browsers the page of a stream bears.
	cargo bench -p ontempo-web --bench viewers

.PHONY: bench-files
bench-files: build ## Measure the goodput of files beside curl, as root.
	scripts/bench-files

.PHONY: bench-again
bench-again: machine ## Measure how soon media is there again after a restart or a cut.
	cargo bench $(FEATURES) -p ontempo-cli --bench again

.PHONY: fmt
fmt: build ## Format Rust and Python.
	cargo fmt --all
	$(BIN)/ruff format

.PHONY: lint
lint: build ## Run clippy, ruff and mypy.
	$(call step,lint)
	scripts/check-features $(FEATURES)
	$(BIN)/python scripts/check-dependencies
	@for folder in $(FUZZ); do \
		cargo metadata --locked --format-version 1 --manifest-path "$$folder/Cargo.toml" > target/metadata || { \
			echo "$$folder/Cargo.lock is old: run cargo update --workspace there"; exit 1; }; \
	done
	cargo clippy $(RELEASE) $(FEATURES) --workspace --all-targets -- -D warnings
	$(C) clippy $(RELEASE) $(IN_C) --all-targets -- -D warnings
	$(LINTING) $(C) test --no-run $(IN_MOQ)
	@if $(HAS_GST); then $(C) clippy $(RELEASE) $(IN_GST) --all-targets -- -D warnings; fi
	$(BIN)/ruff check
	$(BIN)/mypy

.PHONY: docs
docs: build ## Write the generated parts of docs/ anew.
	$(BIN)/ontempo reference > docs/reference/scenario.md
	$(BIN)/ontempo schema > docs/reference/scenario.schema.json
	$(BIN)/ontempo reference tables > docs/reference/tables.md
	$(BIN)/ontempo reference profiles > docs/profiles.md
	ONTEMPO_UPDATE_DOCS=1 $(BIN)/pytest python/tests/test_docs.py python/tests/test_notebook.py -k 'shows or runs'

.PHONY: site
site: build ## Make the documentation as a site with a search: out/site.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "look at it: python3 -m http.server --directory out/site, then http://localhost:8000"

.PHONY: differences
differences: build ## Run the claims in small; write their verdicts.
	$(BIN)/ontempo-lab reproduce --quick --no-open --differences docs/differences.md --write-verdicts experiments/verdicts.txt

.PHONY: clean
clean: ## Remove all that was built; results in out/ stay.
	rm -rf target $(addsuffix /target,$(FUZZ)) $(VENV)

# What stands behind these.

.PHONY: machine
machine:
	@scripts/check-machine $(PYTHON)

$(BIN)/python: | machine
	$(PYTHON) -m venv $(VENV)

# The build tool, in the version that pyproject.toml asks for.
$(BIN)/maturin: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet "$$(sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml)"
	touch $@

# Changes when the machine can build something else than before.
$(VENV)/features: always | $(BIN)/python
	@[[ -e $@ && "$$(<$@)" == "$(FEATURES)" ]] || echo "$(FEATURES)" > $@

.PHONY: always
always:

# The command line, and the Python package in place, whose libraries are installed meanwhile. Cargo
# knows what is fresh; the stamp spares asking it.
$(VENV)/built: $(BIN)/maturin $(VENV)/features $(RUST_SOURCES) Cargo.toml Cargo.lock | machine
	$(call step,build)
	@[[ "$(LANE)" =~ ^(alone|first)$$ ]] || { echo "a source changed while make test ran: run it again"; exit 1; }
	@$(BIN)/python scripts/python-requirements > $(VENV)/requirements
	@$(call while_installing,$(BIN)/python -m pip install --quiet --requirement $(VENV)/requirements,cargo build $(RELEASE) $(FEATURES) -p ontempo-cli)
	PIP_QUIET=1 $(BIN)/maturin develop $(RELEASE)
	install -m 755 target/release/ontempo $(BIN)/ontempo
	touch $@

.PHONY: check-format
check-format: build
	$(call step,check-format)
	cargo fmt --all --check
	cargo fmt --manifest-path bindings/c/Cargo.toml --check
	cargo fmt --manifest-path bindings/gstreamer/Cargo.toml --check
	cargo fmt --manifest-path bindings/moq/Cargo.toml --check
	$(BIN)/ruff format --check

# The tests of the crates, and what they need.
.PHONY: build-rust-tests
build-rust-tests: machine
	$(call step,build-tests)
	rm -f $(PROGRAMS)
	scripts/fetch-base-mibs
	scripts/run-tests build $(PROGRAMS) $(RELEASE) $(FEATURES) --workspace
	cargo test --doc $(RELEASE) $(FEATURES) --workspace | tee -a $(TESTED)/output

# Those of the other workspaces, and those that are compiled to check for overflow. The list stands
# when all are compiled.
.PHONY: build-other-tests
build-other-tests: build gst-where-possible
	$(call step,build-other-tests)
	rm -f $(OTHERS) $(OTHERS).*
	scripts/run-tests build $(OTHERS).part $(OVERFLOW)
	$(C) build $(RELEASE) $(IN_C)
	$(IN_TARGET) scripts/run-tests build $(OTHERS).part $(RELEASE) $(IN_C)
	if $(HAS_GST); then $(IN_TARGET) scripts/run-tests build $(OTHERS).part $(RELEASE) $(IN_GST); fi
	$(LINTING) $(IN_TARGET) scripts/run-tests build $(OTHERS).part $(IN_MOQ)
	mv $(OTHERS).part $(OTHERS)

.PHONY: run-tests
run-tests:
	$(call step,run-tests)
	scripts/run-tests run $(PROGRAMS) | tee -a $(TESTED)/output

# Another lane compiles them meanwhile.
.PHONY: run-other-tests
run-other-tests:
	$(call step,wait-for-other-tests)
	@until [[ -e $(OTHERS) ]]; do \
		[[ ! -e $(OTHERS).failed ]] || { echo "the tests of the other workspaces were not compiled"; exit 1; }; \
		sleep 1; \
	done
	$(call step,run-other-tests)
	scripts/run-tests run $(OTHERS) | tee -a $(TESTED)/output

# In these, overflow is checked in all that they call of each other, too.
OVERFLOW := -p ontempo-foundation -p ontempo-mechanisms -p ontempo-network

.PHONY: test-rust
test-rust: build-rust-tests build-overflow-tests run-tests ## Run the tests of the crates.

.PHONY: build-overflow-tests
build-overflow-tests: machine
	scripts/run-tests build $(PROGRAMS) $(OVERFLOW)

# The library for programs in C: a workspace of its own.
IN_TARGET := CARGO_TARGET_DIR=$(CURDIR)/target
C := $(IN_TARGET) cargo
IN_C := --locked --manifest-path bindings/c/Cargo.toml
PREFIX := /usr/local

.PHONY: c
c: machine ## Build libontempo, the library for programs in C.
	$(C) build $(RELEASE) $(IN_C)

.PHONY: install-c
install-c: c ## Install it: header, libraries, pkg-config file (PREFIX=/usr/local, DESTDIR=).
	scripts/install-c target/release $(PREFIX)

.PHONY: c-header
c-header: machine ## Write its header anew, after a change of bindings/c/src.
	ONTEMPO_WRITE_HEADER=1 $(C) test $(RELEASE) $(IN_C) --test header

.PHONY: test-c
test-c: machine
	$(call step,test-c)
	$(C) build $(RELEASE) $(IN_C)
	$(C) test $(RELEASE) $(IN_C) | tee -a $(TESTED)/output

# The elements for GStreamer: a workspace of its own, which needs GStreamer's headers.
IN_GST := --locked --manifest-path bindings/gstreamer/Cargo.toml
HAS_GST := pkg-config --exists gstreamer-1.0 gstreamer-base-1.0 gstreamer-check-1.0
PLUGINS := target/gstreamer-1.0

.PHONY: gst
gst: machine ## Build ontemposink and ontemposrc into target/gstreamer-1.0.
	$(C) build $(RELEASE) $(IN_GST)
	install -D -m 755 target/release/libgstontempo.so $(PLUGINS)/libgstontempo.so

.PHONY: install-gst
install-gst: gst ## Install the elements where GStreamer looks for them (DESTDIR=).
	install -D -m 755 $(PLUGINS)/libgstontempo.so \
		"$(DESTDIR)$$(pkg-config --variable=pluginsdir gstreamer-1.0)/libgstontempo.so"

.PHONY: gst-where-possible
gst-where-possible: build
	@if $(HAS_GST); then \
		$(MAKE) --no-print-directory gst; \
	else \
		echo "GStreamer's headers are missing: the elements are not built" >&2; \
		[[ -z "$${ONTEMPO_SKIPS:-}" ]] || printf 'gst\ttest-gst\tthe headers of GStreamer are missing\n' >> "$$ONTEMPO_SKIPS"; \
	fi

.PHONY: test-gst
test-gst: gst-where-possible
	$(call step,test-gst)
	@if $(HAS_GST); then $(C) test $(RELEASE) $(IN_GST) | tee -a $(TESTED)/output; fi

# Media over QUIC: a workspace of its own, with a QUIC stack and, for its tests, a relay of its own.
IN_MOQ := --locked --manifest-path bindings/moq/Cargo.toml
# Its tests are linted as they are compiled.
LINTING := RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/lint-while-compiling

.PHONY: moq
moq: machine ## Build ontempo-moq (ontempo publish, subscribe) beside the program.
	$(C) build $(RELEASE) $(IN_MOQ)
	if [ -d $(BIN) ]; then install -m 755 target/release/ontempo-moq $(BIN)/ontempo-moq; fi

.PHONY: install-moq
install-moq: moq ## Install ontempo-moq (DESTDIR=, PREFIX=/usr/local).
	install -D -m 755 target/release/ontempo-moq "$(DESTDIR)$(or $(PREFIX),/usr/local)/bin/ontempo-moq"

.PHONY: test-moq
test-moq: build
	$(call step,test-moq)
	$(C) test $(IN_MOQ) | tee -a $(TESTED)/output

# The targets must compile; what the fuzzer once found runs in test-rust, on stable.
.PHONY: test-fuzz
test-fuzz: machine
	$(call step,test-fuzz)
	@set -e; for folder in $(FUZZ); do \
		CARGO_TARGET_DIR=target cargo check $(RELEASE) --locked --no-default-features --manifest-path "$$folder/Cargo.toml"; \
		scripts/fuzz-briefly "$$folder"; \
	done

# The one program for other systems than Linux.
.PHONY: check-portable
check-portable: machine
	$(call step,check-portable)
	scripts/check-portable

.PHONY: check-rustdoc
check-rustdoc: machine
	$(call step,check-rustdoc)
	RUSTDOCFLAGS="-D warnings" cargo doc $(RELEASE) $(FEATURES) --no-deps --workspace

.PHONY: check-docs
check-docs: build
	$(call step,check-docs)
	@diff -u docs/reference/scenario.md <($(BIN)/ontempo reference) || { echo "docs/reference/scenario.md is not what the code says: run make docs"; exit 1; }
	@diff -u docs/reference/scenario.schema.json <($(BIN)/ontempo schema) || { echo "docs/reference/scenario.schema.json is not what the code says: run make docs"; exit 1; }
	@diff -u docs/profiles.md <($(BIN)/ontempo reference profiles) || { echo "docs/profiles.md is not what the code says: run make docs"; exit 1; }
	@diff -u docs/reference/tables.md <($(BIN)/ontempo reference tables) || { echo "docs/reference/tables.md is not what the code says: run make docs"; exit 1; }

# Analysis and simulation; what has run is kept, so that only a change of engine or claim costs time.
.PHONY: check-claims
check-claims: build
	$(call step,check-claims)
	$(BIN)/ontempo-lab reproduce --quick --no-open --check-verdicts experiments/verdicts.txt

# Files of tests at once: one more than there are processors, as many tests wait.
AT_ONCE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: test-python
test-python: build
	$(call step,test-python)
	$(BIN)/pytest --numprocesses $(AT_ONCE) --dist loadfile --durations 5 | tee -a $(TESTED)/output

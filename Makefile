# `make help` lists the targets. Everything built or installed lands in target/ and .venv/.

SHELL := /bin/bash
.DEFAULT_GOAL := help
SEEDS ?= 100
SEED ?= 1
ARGS ?=

.PHONY: help
help: ## Lists the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Builds what it needs and runs the main job; ARGS="--help" shows what can be set.
	@scripts/venv.sh demo
	@scripts/build-wheel.sh
	@.venv/bin/sanderling demo $(ARGS)

.PHONY: test
test: ## Installs what the tests need and runs all of them.
	@python3 scripts/test.py $(ARGS)

.PHONY: build
build: ## Builds the binary target/release/sanderling.
	cargo build --locked --release --package sanderling-cli

.PHONY: wheel
wheel: ## Builds the Python package into target/wheels and installs it into .venv.
	@scripts/build-wheel.sh

.PHONY: sim
sim: ## Runs SEEDS simulated clusters from seed SEED on.
	cargo run --quiet --locked --release --package sanderling-cli -- \
		sim --seed $(SEED) --seeds $(SEEDS) $(ARGS)

.PHONY: bench
bench: ## Compares with iperf3, Redis, memcached, Ray and fio; ARGS="--rows 1,2" for some rows.
	@python3 bench/compare.py $(ARGS)

.PHONY: docs
docs: ## Builds the documentation site, target/site/index.html, and checks its links.
	@scripts/venv.sh docs
	@.venv-docs/bin/python scripts/docs.py build $(ARGS)

.PHONY: docs-serve
docs-serve: docs ## Serves the documentation site on http://127.0.0.1:8000/.
	@.venv-docs/bin/python scripts/docs.py serve

.PHONY: bench-arrow
bench-arrow: ## Reads store_sales from tables, Parquet and Feather; ARGS="--remote" goes over TCP.
	@scripts/venv.sh test
	@scripts/build-wheel.sh
	@.venv/bin/python bench/arrow.py $(ARGS)

.PHONY: lint
lint: ## Checks format, lints and the repository's own rules.
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --quiet --package sanderling-tidy

.PHONY: format
format: ## Formats the Rust code.
	cargo fmt --all

.PHONY: clean
clean: ## Removes what was built and installed.
	cargo clean
	rm -rf .venv .venv-docs dist demo-out

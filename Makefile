# `make help` lists the targets. Everything built or installed lands in target/ and .venv/.

SHELL := /bin/bash
.DEFAULT_GOAL := help
SEEDS ?= 100
SEED ?= 1
ARGS ?=
DEMO ?=
REQUIRE ?=

.PHONY: help
help: ## Lists the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Builds what it needs and runs the main job; DEMO=spark runs it on Spark.
ifeq ($(DEMO),spark)
	@scripts/venv.sh build
	@scripts/build-wheel.sh
	@$(MAKE) --no-print-directory jvm
	@python3 bench/spark/demo.py $(ARGS)
else
	@scripts/venv.sh demo
	@PROFILE=$(or $(PROFILE),demo) scripts/build-wheel.sh
	@.venv/bin/sanderling demo $(ARGS)
endif

.PHONY: test
test: ## Installs what the tests need and runs the tests of every change.
	@python3 scripts/test.py $(ARGS)

.PHONY: build
build: ## Builds the binary target/release/sanderling, with all commands.
	cargo build --locked --release --package sanderling-cli

.PHONY: product
product: ## Builds target/release/sanderling without the commands that measure it, for images.
	cargo build --locked --release --package sanderling-cli --no-default-features

.PHONY: wheel
wheel: ## Builds the Python package into target/wheels and installs it into .venv.
	@scripts/build-wheel.sh

.PHONY: first-minute
first-minute: wheel ## Measures pip install, a tour, and its drain in Chromium; WHEEL=<path> for another wheel.
	@scripts/console-test/run.sh minute

.PHONY: dist
dist: ## Builds all packages into dist/, with checksums; ARGS="tarball wheel" for some of them.
	@scripts/venv.sh dist
	@python3 packaging/dist.py $(ARGS)

.PHONY: dist-test
dist-test: ## Installs and uses each package of dist/ in a clean root; as root; ARGS="-k wheel".
	@python3 packaging/dist_test.py $(ARGS)

.PHONY: dist-compare
dist-compare: ## Builds dist/ again in another directory and compares every file; ARGS="wheel jars".
	@python3 packaging/dist.py --check-reproducible $(ARGS)

.PHONY: dist-arm
dist-arm: ## Builds the packages for aarch64 into dist-arm/; fails without the tools if REQUIRE=1.
	@scripts/venv.sh dist
	@python3 packaging/aarch64.py $(ARGS) || { code=$$?; \
	[ $$code = 77 ] && [ -z "$(REQUIRE)" ] || exit $$code; }

.PHONY: dist-arm-test
dist-arm-test: ## Runs the packages of dist-arm/ under qemu; skips with the reason what it cannot.
	@python3 packaging/aarch64_test.py $(ARGS)

.PHONY: torch-test
torch-test: ## Tests checkpoints of torch, from Debian sid's packages; ARGS="RanksTest" for some.
	@[ -n "$$WHEEL" ] || { scripts/venv.sh build && scripts/build-wheel.sh; }
	@scripts/venv.sh s3 || echo "without moto, the tests with a bucket are skipped" >&2
	@scripts/venv.sh s3fs || echo "without s3fs as it is pinned, that of Debian sid may not fit" >&2
	@scripts/torch_env.sh; code=$$?; [ $$code -ne 77 ] || exit 0; [ $$code -eq 0 ] || exit $$code; \
	target/torch/python3 scripts/torch_test.py $(ARGS)

.PHONY: torch-bench
torch-bench: ## Measures checkpoints of torch beside torch's own on tmpfs; ARGS="--mib 256".
	@[ -n "$$WHEEL" ] || { scripts/venv.sh build && scripts/build-wheel.sh; }
	@scripts/torch_env.sh
	@target/torch/python3 bench/torch_checkpoint.py $(ARGS)

.PHONY: jvm
jvm: ## Builds the jars of the Java client and of what stands on it, into jvm/*/target.
	@PROFILE=release scripts/build-jvm.sh
	@mvn --quiet --batch-mode -f jvm/pom.xml -DskipTests package

.PHONY: jvm-bench
jvm-bench: ## Measures what the client's calls take from Java; ARGS="1 5": seconds, rounds.
	@PROFILE=release scripts/build-jvm.sh
	@mvn --quiet --batch-mode -f jvm/pom.xml --projects client test-compile
	@java -Xmx1g -cp jvm/client/target/classes:jvm/client/target/test-classes \
		io.sanderling.client.ClientBench $(ARGS)

.PHONY: hadoop-bench
hadoop-bench: ## Runs TestDFSIO here and on the local files; ARGS="5 4 128": rounds, files, MB each.
	@cargo build --quiet --locked --release --package sanderling-cli
	@PROFILE=release scripts/build-jvm.sh
	@mvn --quiet --batch-mode -f jvm/pom.xml --projects hadoop --also-make test-compile $(\
	) org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath $(\
	) -Dmdep.outputFile=target/classpath -Dmdep.includeScope=test
	@cd jvm/hadoop && java -Xmx1g -cp target/test-classes:target/classes:$$(cat target/classpath) \
		io.sanderling.hadoop.DfsioBench $(ARGS)

.PHONY: sim
sim: ## Runs SEEDS simulated clusters from seed SEED on.
	cargo run --quiet --locked --release --package sanderling-cli -- \
		sim --seed $(SEED) --seeds $(SEEDS) $(ARGS)

.PHONY: chaos
chaos: ## Breaks real processes for 500 rounds; ARGS="--rounds N --seed S --sync os|always".
	@python3 scripts/chaos.py $(ARGS)

.PHONY: upgrade-test
upgrade-test: ## Upgrades fleets from an earlier program while clients work; OLD=<program or revision>.
	@scripts/upgrade.sh

.PHONY: group-chaos
group-chaos: ## Kills and stops namenodes of a group 500 times and judges what callers saw; ROUNDS=500 SEED=1.
	@SANDERLING_GROUP_ROUNDS=$(or $(ROUNDS),500) SANDERLING_GROUP_SEED=$(SEED) cargo test --locked --quiet \
		--package sanderling-cli --test group_chaos -- --ignored --nocapture
	@cd scripts/linearizability && go run . ../../target/histories/group.jsonl

.PHONY: group-partitions
group-partitions: ## Parts the networks of a group 200 times and judges what callers saw; as root; ROUNDS=200 SEED=1.
	@SANDERLING_GROUP_ROUNDS=$(or $(ROUNDS),200) SANDERLING_GROUP_SEED=$(SEED) cargo test --locked --quiet \
		--package sanderling-cli --test group_partitions -- --ignored --nocapture
	@cd scripts/linearizability && go run . ../../target/histories/group-partitions.jsonl

.PHONY: task-chaos
task-chaos: ## Kills what a task and its checkpoints need 1000 times and restores it each time; ROUNDS=1000 SEED=1 WORLD=bucket.
	@SANDERLING_TASK_ROUNDS=$(or $(ROUNDS),1000) SANDERLING_TASK_SEED=$(SEED) SANDERLING_TASK_WORLD=$(WORLD) \
		cargo test --locked --quiet --package sanderling-cli --test task_chaos -- --ignored --nocapture

.PHONY: bench
bench: ## Compares with iperf3, Redis, memcached, Ray and fio; ARGS="--rows 1,2" for some rows.
	@python3 bench/compare.py $(ARGS)

.PHONY: bench-shares
bench-shares: build ## Shows what the processes of rows spend their time on; needs perf; ARGS="--rows 2,3".
	@python3 bench/shares.py $(ARGS)

.PHONY: bench-tls
bench-tls: build ## Measures what TLS and tokens cost; ARGS="--nginx /usr/sbin/nginx" beside nginx.
	@python3 bench/tls.py $(ARGS)

.PHONY: bench-versions
bench-versions: build ## Compares the program BEFORE with this one on rows 1 to 12, in turn.
	@python3 bench/versions.py --before $(BEFORE) $(ARGS)

.PHONY: bench-scrub
bench-scrub: build ## Measures what a datanode's scrub costs itself and its readers; ARGS="--rate 1GiB".
	@python3 bench/scrub.py $(ARGS)

.PHONY: bench-durable
bench-durable: build ## Measures how durable directories are copied by 1, 2 and 4 datanodes; ARGS="--links".
	@python3 bench/durable.py $(ARGS)

.PHONY: bench-freeze
bench-freeze: build ## Measures how long a checkpoint stops a task, beside CRIU's dump; ARGS="--mb 1024".
	@scripts/criu.sh >/dev/null
	@python3 bench/freeze.py $(ARGS)

.PHONY: bench-noisy
bench-noisy: build ## Measures a tenant beside noisy ones; ARGS="--seconds 3 --hog usage,list".
	@python3 bench/noisy.py $(ARGS)

.PHONY: bench-group
bench-group: build ## Measures three namenodes beside one; ARGS="--parts steady --rounds 5".
	@python3 bench/group.py $(ARGS)

.PHONY: mutants
mutants: ## Changes the code in 150 small ways and prints those that no test detects; ARGS="--seed 7".
	@python3 scripts/mutants.py $(ARGS)

.PHONY: fuzz
fuzz: ## Fuzzes every parser for SECONDS=60 each, or EXECUTIONS=1e9 in all; ARGS="frame --keep".
	@python3 scripts/fuzz.py --seconds $(or $(SECONDS),60) \
		$(if $(EXECUTIONS),--executions $(EXECUTIONS)) $(ARGS)

.PHONY: deny
deny: ## Checks licences, sources and versions of dependencies by deny.toml.
	@if command -v cargo-deny > /dev/null; \
	then cargo deny --all-features --log-level error check licenses bans sources; \
	else python3 scripts/licences.py check; fi

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

.PHONY: spark-suites
spark-suites: jvm build ## Runs all of Spark's own suites that apply, with Sanderling's shuffle.
	@python3 scripts/spark_suites.py --whole $(ARGS)

.PHONY: spark-test
spark-test: ## Runs all tests of both Sparks, of which `make test` runs some, most on one.
	@python3 scripts/test.py --spark-all $(ARGS) jvm spark

.PHONY: spark-chaos
spark-chaos: jvm build ## Kills datanodes during TPC-DS on Spark; ARGS="--seed 7" kills others.
	@scripts/venv.sh spark43
	@.venv-spark43/bin/python scripts/spark_chaos.py $(ARGS)

.PHONY: spark-bench
spark-bench: ## Runs TPC-DS on Spark with both shuffles; ARGS="--minutes 30" bounds it.
	@[ -n "$$SANDERLING_BIN" ] || $(MAKE) --no-print-directory build
	@[ -n "$$SANDERLING_SPARK_JAR" ] || $(MAKE) --no-print-directory jvm
	@python3 bench/spark/run.py $(ARGS)

.PHONY: lint
lint: ## Checks format, lints and the repository's own rules.
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --quiet --package sanderling-tidy
	@$(MAKE) --no-print-directory deny

.PHONY: format
format: ## Formats the Rust code.
	cargo fmt --all

.PHONY: synchronous
synchronous: ## Makes the synchronous half of the Python package from the asynchronous one.
	@python3 bindings/python/synchronous.py

.PHONY: clean
clean: ## Removes what was built and installed.
	cargo clean
	rm -rf .venv .venv-* dist dist-arm demo-out

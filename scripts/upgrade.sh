#!/usr/bin/env bash
# Upgrades fleets from an earlier program to the present one, by tests with real processes. OLD is a
# program, or a revision to build it from; the default is the last one before messages of version 4.
set -euo pipefail
cd "$(dirname "$0")/.."

old=${OLD:-3086c78a}
if [ -f "$old" ]; then
    program=$(realpath "$old")
else
    revision=$(git rev-parse --verify --short=12 "$old^{commit}")
    tree=target/upgrade/$revision
    program=$PWD/$tree/target/debug/sanderling
    if [ ! -x "$program" ]; then
        rm -rf "$tree"
        mkdir -p "$tree"
        # Without a work tree of git, which would stay in the repository's list of them.
        git archive "$revision" | tar -x -C "$tree"
        echo "building the program of $revision; this takes minutes" >&2
        (cd "$tree" && CARGO_TARGET_DIR="$PWD/target" cargo build --locked --quiet \
            --package sanderling-cli)
    fi
fi
echo "upgrading from $("$program" --version)" >&2
for tests in fleet group; do
    SANDERLING_PREVIOUS_PROGRAM=$program cargo test --locked --quiet --package sanderling-cli \
        --test "$tests" -- --ignored --nocapture --test-threads 1 earlier_program
done

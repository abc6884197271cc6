#!/usr/bin/env bash
# Upgrades fleets from an earlier program to the present one, by tests with real processes. OLD is a
# program, or a revision to build it from; the default is the last one before messages of version 4.
set -euo pipefail

old=${OLD:-3086c78a}
[ ! -f "$old" ] || old=$(realpath "$old")
cd "$(dirname "$0")/.."
if [ -f "$old" ]; then
    program=$old
else
    revision=$(git rev-parse --verify --quiet --short=12 "$old^{commit}") || {
        echo "$old is no program and no revision; in a shallow clone: git fetch --unshallow" >&2
        exit 2
    }
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
version=$("$program" --version)
echo "upgrading from $version, $program" >&2
for tests in fleet group; do
    SANDERLING_PREVIOUS_PROGRAM=$program cargo test --locked --quiet --package sanderling-cli \
        --test "$tests" -- --ignored --nocapture --test-threads 1 earlier_program
done

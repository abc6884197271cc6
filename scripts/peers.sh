#!/usr/bin/env bash
# Installs the programs that tests are run against and that a machine lacks: a browser, shells, a
# reader of manual pages. Does so only for root on Debian with CI set, as on a machine that was made
# for the tests; elsewhere the tests that need one are skipped, and name the package.
set -euo pipefail

missing=()
needs() {
    command -v "$1" >/dev/null || missing+=("$2")
}
needs chromium chromium
needs zsh zsh
needs fish fish
needs mandoc mandoc
if [ ${#missing[@]} = 0 ] || [ -z "${CI:-}" ] || [ "$(id -u)" != 0 ] ||
    ! command -v apt-get >/dev/null; then
    exit 0
fi
# Another step of the tests may be installing.
mkdir -p "$(dirname "$0")/../target"
exec 9>"$(dirname "$0")/../target/install.lock"
flock 9
install() {
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends \
        -o DPkg::Lock::Timeout=60 "${missing[@]}"
}
install || { apt-get update --quiet && install; }

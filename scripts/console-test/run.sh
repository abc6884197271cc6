#!/usr/bin/env bash
# Runs the tests of the web console, with `frames` measures it, or with `minute` the first minute.
# Installs the pinned packages that drive a browser if they are not there. Exits with 3 without
# Node 20 or later, or Chromium.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    echo "Node is not there: apt install nodejs npm" >&2
    exit 3
fi
if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then
    echo "Node $(node --version) is too old: 20 or later is needed" >&2
    exit 3
fi
if [ -z "${CHROMIUM:-}" ] && [ ! -x /usr/bin/chromium ] && [ ! -x /usr/bin/chromium-browser ] &&
    [ ! -x /usr/bin/google-chrome ]; then
    echo "Chromium is not there: apt install chromium, or set CHROMIUM" >&2
    exit 3
fi
if ! cmp -s package-lock.json node_modules/.installed; then
    if ! npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; then
        echo "the packages could not be installed: npm ci in scripts/console-test" >&2
        exit 3
    fi
    cp package-lock.json node_modules/.installed
fi
if [ "${1:-}" = frames ]; then
    exec node frames.mjs
fi
if [ "${1:-}" = minute ]; then
    exec node minute.mjs
fi
exec node --test --test-reporter=tap console.test.mjs plot.test.mjs

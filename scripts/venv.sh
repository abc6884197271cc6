#!/usr/bin/env bash
# Makes .venv, if it is not there, and installs one of the pinned sets: build, demo or test. The
# sets s3, s3fs, docs, dist, interop and spark35, spark41, spark43 have their own: .venv-s3, ...
set -euo pipefail
cd "$(dirname "$0")/.."

# Steps of the tests run at once: one makes environments and calls apt, the others wait.
mkdir -p target
exec 9>target/install.lock
flock 9

kind=${1:-build}
requirements=bindings/python/requirements-$kind.txt
if [ ! -f "$requirements" ]; then
    echo "usage: scripts/venv.sh build|demo|test" \
        "|s3|s3fs|docs|dist|interop|spark35|spark41|spark43" >&2
    exit 2
fi
venv=.venv
case $kind in s3 | s3fs | docs | dist | interop | spark*) venv=.venv-$kind ;; esac

find_python() {
    for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    echo "Python 3.11 or later is needed: install it or set PYTHON" >&2
    exit 1
}

# Debian ships `venv` without `ensurepip`; its package python3-venv brings it.
make_venv() {
    local python
    python=$(find_python)
    if "$python" -m venv $venv >$venv.log 2>&1; then
        rm -f $venv.log
        return
    fi
    rm -rf $venv
    if "$python" -m virtualenv -q $venv >>$venv.log 2>&1; then
        rm -f $venv.log
        return
    fi
    # A pip outside can install one inside.
    if "$python" -m venv --without-pip $venv >>$venv.log 2>&1 &&
        "$python" -m pip --python $venv/bin/python install -q pip >>$venv.log 2>&1; then
        rm -f $venv.log
        return
    fi
    rm -rf $venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing python3-venv" >&2
        { apt-get update -qq && apt-get install -y -qq python3-venv; } >>$venv.log 2>&1 || true
        if "$python" -m venv $venv >>$venv.log 2>&1; then
            rm -f $venv.log
            return
        fi
    fi
    cat $venv.log >&2
    echo "no virtual environment could be made: install python3-venv" >&2
    exit 1
}

[ -x $venv/bin/python ] && $venv/bin/python -c 'import pip' 2>/dev/null || make_venv

# The stamp holds the sets' texts, so an unchanged environment costs no network and no time.
stamp=$venv/.sanderling-$kind
wanted=$(cat bindings/python/requirements-*.txt | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "installing the Python packages of requirements-$kind.txt" >&2
    $venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$requirements"
    echo "$wanted" >"$stamp"
fi

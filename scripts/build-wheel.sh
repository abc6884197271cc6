#!/usr/bin/env bash
# Builds the wheel with maturin and installs it into .venv; does nothing when nothing has changed.
# The wheel lands in target/wheels. PROFILE=dev builds without optimization; PROFILE=demo as
# `make demo` does: in a third of the time; PROFILE=wheel as
# `make dist` does: smaller, and for minutes longer. The default shares its crates with the program.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -x .venv/bin/maturin ] || scripts/venv.sh build

# The wheel carries the licences of what it is linked with.
python3 scripts/licences.py write sanderling-python bindings/python/THIRD-PARTY.txt

# The crates that the wheel is linked with. What measures the product (lab, bench) is not among
# them, and changing it builds no wheel.
mapfile -t crates < <(
    cargo tree --locked --package sanderling-python --edges normal,build --prefix none \
        --format '{p}' | sed -n 's|^[^(]* (\(/[^)]*\)).*$|\1|p' | LC_ALL=C sort -u
)

profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-target}
stamp=.venv/.sanderling-wheel
wanted=$(
    {
        echo "$profile" "$(rustc --version)"
        find Cargo.toml Cargo.lock "${crates[@]#"$PWD"/}" -type f \
            -not -path '*/tests/*' -not -path '*/interop/*' -not -path '*/__pycache__/*' \
            -not -name '*.so' -not -name 'requirements-*' -print0 |
            LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum
)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

# A free-threaded Python has no stable ABI: its wheel is for it alone.
features=()
if .venv/bin/python -c 'import sys, sysconfig
sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))'; then
    features=(--no-default-features)
fi
compression=9
# Beside the tests, with the features of crates that these need: what is compiled is shared.
# That wheel stays on this machine: nothing is gained by making it small.
if [ "$profile" = dev ]; then
    features+=(--features beside-tests)
    compression=1
fi

# maturin looks up which symbols of glibc the module needs, and tags the wheel with the oldest
# manylinux that has all of them: that of the machine it is built on, or earlier.
echo "building the Python wheel (profile $profile); from nothing this takes minutes" >&2
rm -f "$target"/wheels/sanderling-*.whl
python3 scripts/compiling.py .venv/bin/maturin build --profile "$profile" \
    --compression-level "$compression" --manifest-path bindings/python/Cargo.toml \
    "${features[@]}" --interpreter .venv/bin/python --out "$target/wheels"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
    "$target"/wheels/sanderling-*.whl
echo "$wanted" >"$stamp"

#!/usr/bin/env bash
# Unpacks a Python with torch for CPUs into target/torch, if it is not there, and installs the wheel
# beside it: target/torch/python3 runs it. The packages are those of Debian sid, from this machine's
# own mirror; nothing is installed and no script of theirs runs. sid moves: no version is pinned.
# Only the client of buckets is that of .venv-s3fs, if scripts/venv.sh has made it.
# Without apt it prints why on stderr and returns 77. WHEEL names the wheel; target/wheels else.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/target/torch
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
packages=(python3-torch python3-numpy python3-fsspec python3-s3fs)

skip() {
    echo "SKIPPED: no Python with torch: $1" >&2
    exit 77
}

mirror() {
    apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT) $(CODENAME)' \
        'Created-By: Packages' 2>/dev/null |
        awk '$2 == "Debian" && $3 == "main" && $4 !~ /-/ { print $1; exit }'
}

# An apt apart from the machine's: another release, an empty list of what is installed.
own_apt() {
    LC_ALL=C.UTF-8 apt-get -qq -o "Dir::State=$state" -o "Dir::State::status=$state/status" \
        -o "Dir::Cache=$state/cache" -o "Dir::Etc::SourceList=$state/debian.sources" \
        -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o APT::Install-Recommends=false -o APT::Architectures="$(dpkg --print-architecture)" "$@"
}

unpack() {
    command -v apt-get >/dev/null && [ -f "$keyring" ] || skip "apt and Debian's keys are missing"
    local from
    from=$(mirror)
    [ -n "$from" ] || skip "apt has no Debian mirror: run apt-get update"
    local state=$root.apt new=$root.new package
    rm -rf "$state" "$new"
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$new"
    touch "$state/status"
    printf 'Types: deb\nURIs: %s\nSuites: sid\nComponents: main\nSigned-By: %s\n' \
        "$from" "$keyring" >"$state/debian.sources"
    echo "downloading Python and torch of Debian sid (about 250 MB)" >&2
    own_apt update || skip "apt-get update of Debian sid failed"
    own_apt --yes --download-only install "${packages[@]}" ||
        skip "the packages of Debian sid cannot be downloaded"
    for package in "$state"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$new"
    done
    rm -rf "$state" "$root"
    mv "$new" "$root"
    echo "${packages[*]}" >"$root/packages"
}

# The loader and libc are those of the packages. Python looks for its modules beside `--argv0`.
write_starter() {
    local loader place
    loader=$(find "$root"/usr/lib -maxdepth 2 -name 'ld-linux*.so.*' | head -1)
    place=$(dirname "$(find "$root"/usr/lib -maxdepth 2 -name libc.so.6 | head -1)")
    # What it starts by `sys.executable` is this script again, with the same libraries.
    cat >"$root/usr/bin/python3-torch" <<END
#!/bin/sh
export OPENBLAS_NUM_THREADS=\${OPENBLAS_NUM_THREADS:-1}
exec $loader --library-path $place:$place/blas:$place/lapack:$root/usr/lib \
--argv0 $root/usr/bin/python3-torch $(readlink -f "$root/usr/bin/python3") "\$@"
END
    chmod +x "$root/usr/bin/python3-torch"
    ln -sf usr/bin/python3-torch "$root/python3"
}

# In sid, aiobotocore may be of another time than botocore, which it does not work with. Those of
# .venv-s3fs are pinned together. They are Python alone, so that any interpreter runs them, and go
# before those of sid; what they need beside comes from sid.
link_bucket_client() {
    local pinned=$root/pinned names=(aiobotocore botocore fsspec s3fs) place name found
    rm -rf "$pinned" "$root/usr/lib/python3/dist-packages/bucket-client.pth"
    place=$(find "$PWD/.venv-s3fs/lib" -maxdepth 2 -name site-packages 2>/dev/null |
        head -1) || true
    [ -n "$place" ] || return 0
    mkdir "$pinned"
    for name in "${names[@]}"; do
        for found in "$place/$name" "$place/$name"-*.dist-info; do
            [ -e "$found" ] || continue
            ln -s "$found" "$pinned/"
        done
    done
    echo "import sys; sys.path.insert(0, '$pinned')" \
        >"$root/usr/lib/python3/dist-packages/bucket-client.pth"
}

install_wheel() {
    local wheel=${WHEEL:-} place=$root/usr/lib/python3/dist-packages sum
    [ -n "$wheel" ] || wheel=$(ls -t target/wheels/sanderling-*.whl 2>/dev/null | head -1 || true)
    if [ -z "$wheel" ]; then
        echo "target/wheels has no wheel: run \`make wheel\`, or name one by WHEEL" >&2
        exit 1
    fi
    sum=$(sha256sum <"$wheel")
    [ "$(cat "$root/wheel" 2>/dev/null)" = "$sum" ] && return
    rm -rf "$place"/sanderling "$place"/sanderling-*
    "$root/python3" -m zipfile -e "$wheel" "$place"
    echo "$sum" >"$root/wheel"
}

# Whether it was unpacked with these packages.
is_unpacked() {
    [ -x "$root/usr/bin/python3-torch" ] &&
        [ "$(cat "$root/packages" 2>/dev/null)" = "${packages[*]}" ]
}

if ! is_unpacked || ! "$root/python3" -c 'import torch, numpy' 2>/dev/null; then
    is_unpacked || unpack
    write_starter
    "$root/python3" -c 'import torch, numpy' || skip "torch of Debian sid cannot be imported"
fi
link_bucket_client
install_wheel

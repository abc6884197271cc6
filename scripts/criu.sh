#!/usr/bin/env bash
# Unpacks CRIU of Debian's unstable distribution, with the libraries that it is linked against, into
# target/criu, and prints the path of a program that starts it. Nothing is installed: the packages
# of this machine stay as they are. Does nothing where it is there already.
#
# The release of CRIU moves on with the distribution. Whether it works here is found out by
# `target/criu/criu check`.
set -euo pipefail
cd "$(dirname "$0")/.."

directory=$PWD/target/criu
program=$directory/criu
if [ -x "$program" ]; then
    echo "$program"
    exit 0
fi
for command in apt-get dpkg-deb; do
    if ! command -v $command >/dev/null; then
        echo "$command is not here: install CRIU 4.2 or newer, and put it into PATH" >&2
        exit 1
    fi
done

# The mirror from which this machine has its own packages of Debian.
sources=(/etc/apt/sources.list /etc/apt/sources.list.d/*)
uris=$(cat "${sources[@]}" 2>/dev/null | grep -E '^(URIs:|deb[[:space:]])' |
    grep -oE '[a-z+]+://[^[:space:]]+' || true)
mirror=$(grep -E '/debian/?$' <<<"$uris" | head -n 1 || true)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -z "$mirror" ] || [ ! -e $keyring ]; then
    echo "this machine has no packages of Debian: install CRIU 4.2 or newer" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,etc/preferences.d,etc/apt.conf.d}
# With no package installed, all libraries come along.
touch "$work/status"
echo "deb [signed-by=$keyring] $mirror sid main" >"$work/etc/sources.list"
apt=(apt-get -qq -o "Dir::State=$work" -o "Dir::State::status=$work/status"
    -o "Dir::Cache=$work/cache" -o "Dir::Etc=$work/etc"
    -o "Dir::Etc::sourcelist=$work/etc/sources.list" -o "Dir::Etc::sourceparts=-"
    -o "APT::Sandbox::User=$(id -un)")
"${apt[@]}" update >&2
"${apt[@]}" install -y --download-only --no-install-recommends criu >&2

mkdir -p "$work/root"
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$work/root"
done
rm -rf "$directory"
mkdir -p "$(dirname "$directory")"
mv "$work/root" "$directory"
loader=$(find "$directory/usr/lib" -path '*-linux-gnu*/ld-linux*' | head -n 1)
cat >"$program" <<END
#!/bin/sh
exec "$loader" --library-path "$(dirname "$loader")" "$directory/usr/sbin/criu" "\$@"
END
chmod +x "$program"
"$program" --version >&2
echo "$program"

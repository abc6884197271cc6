#!/bin/sh
# Installs the program, its manual pages and completions below PREFIX (/usr/local).
# Usage: ./install.sh [PREFIX]
# A running older version is not disturbed: every file is replaced by a rename, and a server keeps
# the program that it was started with until it is started again.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-/usr/local}
case $prefix in
/*) ;;
*)
    echo "install.sh: the prefix must be an absolute path, not \"$prefix\"" >&2
    exit 2
    ;;
esac
if ! "$here/bin/sanderling" --version >/dev/null 2>&1; then
    echo "install.sh: $here/bin/sanderling does not run here: it needs Linux on x86-64 with" \
        "glibc 2.28 or later" >&2
    exit 1
fi
old=$("$prefix/bin/sanderling" --version 2>/dev/null || true)
cd "$here"
find bin share -type f | while read -r file; do
    mkdir -p "$prefix/$(dirname "$file")"
    new=$prefix/$(dirname "$file")/.sanderling-new
    cp "$file" "$new"
    mv -f "$new" "$prefix/$file"
done
echo "installed $("$prefix/bin/sanderling" --version) in $prefix"
if [ -n "$old" ]; then
    echo "it replaces $old; servers that run keep their program until you start them again," \
        "the namenode first: share/doc/sanderling/docs/UPGRADING.md"
fi

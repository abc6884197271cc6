#!/usr/bin/env bash
# Unpacks Debian's prometheus and promtool into target/prometheus, which the tests of the monitoring
# files run. It installs nothing, so no service starts. Does nothing where they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."

directory=target/prometheus
[ -x $directory/usr/bin/promtool ] && exit 0
if command -v promtool >/dev/null; then
    exit 0
fi
for program in apt-get dpkg-deb; do
    if ! command -v $program >/dev/null; then
        echo "$program is not here: put promtool and prometheus into PATH" >&2
        exit 1
    fi
done
mkdir -p $directory
# Another step of the tests may be installing.
exec 9>target/install.lock
flock 9
(
    cd $directory
    apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }
    # The whole package has a web interface besides, of which nothing is used.
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool ./usr/bin/prometheus
    rm -f prometheus_*.deb
)

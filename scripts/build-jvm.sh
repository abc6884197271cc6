#!/usr/bin/env bash
# Builds the native half of the Java client into target/jvm-native, from where Maven puts it into
# the jar. PROFILE=release optimizes; ARCH=aarch64 builds for that where rustup has the target and
# a linker is there. SELECTION="..." are the packages and targets that cargo builds in one command,
# the library among them: crates that they share with it are then compiled once. Prints where the
# library is.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${PROFILE:-dev}
arch=${ARCH:-x86_64}
target=${CARGO_TARGET_DIR:-target}
read -ra selection <<<"${SELECTION:---package sanderling-jni}"
arguments=(--locked --quiet "${selection[@]}" --profile "$profile")
built=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
if [ "$arch" != "$(uname -m)" ]; then
    arguments+=(--target "$arch-unknown-linux-gnu")
    built=$target/$arch-unknown-linux-gnu/$([ "$profile" = dev ] && echo debug || echo "$profile")
fi

echo "building the native half of the Java client (profile $profile, $arch)" >&2
cargo build "${arguments[@]}"
place=target/jvm-native/native/linux-$arch
mkdir -p "$place"
# An unchanged library keeps its time, so that Maven does not pack it again.
if ! cmp -s "$built/libsanderling_jni.so" "$place/libsanderling_jni.so"; then
    cp "$built/libsanderling_jni.so" "$place/libsanderling_jni.so.new"
    mv "$place/libsanderling_jni.so.new" "$place/libsanderling_jni.so"
fi
# The jars carry the licences of what it is linked with.
python3 scripts/licences.py write sanderling-jni target/jvm-native/META-INF/THIRD-PARTY.txt
cmp -s LICENSE target/jvm-native/META-INF/LICENSE || cp LICENSE target/jvm-native/META-INF/LICENSE
echo "$place/libsanderling_jni.so"

#!/bin/sh
# Build the parts of libjpeg-turbo that a wheel needs: an archive to link into the decoder, and its private header. The
# systems that wheels are built on have neither.
#
#     tools/libjpeg_turbo.sh [PREFIX]        # /usr/local
#
# Needs git, cmake, a C compiler and, on x86-64, nasm.
set -eu
version=3.2.0 commit=c85e6b905bf237038faa936dab160ebfc5da0344
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

git clone -q -c advice.detachedHead=false --depth 1 --branch "$version" \
    https://github.com/libjpeg-turbo/libjpeg-turbo "$work/source"
[ "$(git -C "$work/source" rev-parse HEAD)" = "$commit" ] || { echo "the tag $version has moved" >&2; exit 1; }
cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=1 \
    -DENABLE_SHARED=0 -DWITH_TURBOJPEG=0 -DWITH_TOOLS=0 -DWITH_TESTS=0 -DREQUIRE_SIMD=1 \
    -DCMAKE_INSTALL_PREFIX="${1:-/usr/local}" -DCMAKE_INSTALL_LIBDIR=lib
cmake --build "$work/build" --parallel
cmake --install "$work/build"
cp "$work/source/src/jpegint.h" "${1:-/usr/local}/include/"

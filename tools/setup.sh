#!/bin/sh
# Set up .venv:  tools/setup.sh run|test. `run` is the package alone, `test` also what its tests need.
# Also installs system headers, if that is allowed.
set -eu
kind=$1
venv=.venv
log=$venv/install.log
decoder="g++ libjpeg-dev"

say() { printf '%s\n' "$*" >&2; }

can_install_packages() { command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; }

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
    if "$1" -c 'import ensurepip' 2>/dev/null || { can_install_packages && apt_install "$package"; }; then
        "$1" -m venv "$venv"
    else
        say "Python's venv module is missing:  sudo apt-get install $package"
        exit 1
    fi
}

install_decoder_headers() {
    if ! echo '#include <cstdio>
#include <jpeglib.h>' | c++ -x c++ -fsyntax-only - 2>/dev/null; then
        say "installing a compiler and the headers of libjpeg-turbo for the decoder ..."
        # shellcheck disable=SC2086
        { can_install_packages && apt_install $decoder; } ||
            say "Skipping the native decoder: images load at less than 40% of the speed. To install it:  sudo apt-get install $decoder"
    fi
}

# uv installs several times as fast as pip; if it cannot be installed, pip is used.
install() {
    if "$venv/bin/pip" install -q uv >>"$log" 2>&1; then
        "$venv/bin/uv" pip install --python "$venv/bin/python" -e "$1" >>"$log" 2>&1
    else
        "$venv/bin/pip" install -e "$1" >>"$log" 2>&1
    fi
}

# Run a command in the background, and report every ten seconds that it is still running.
run_with_progress() {
    "$@" &
    process=$!
    seconds=0
    while kill -0 "$process" 2>/dev/null; do
        sleep 1
        seconds=$((seconds + 1))
        [ $((seconds % 10)) -ne 0 ] || say "  $seconds s, $(du -sh "$venv" | cut -f1) installed"
    done
    wait "$process"
}

report_failure() {
    say "The installation failed. The end of $log:"
    tail -n 20 "$log" >&2
    exit 1
}

if [ ! -x "$venv/bin/pip" ]; then
    python=$(find_python)
    make_venv "$python"
fi
: >"$log"
install_decoder_headers
case $kind in
run) package=. ;;
test) package=".[dev]" ;;
*) say "tools/setup.sh run|test" && exit 2 ;;
esac
say "installing resnet-recipes into $venv; the first time this downloads PyTorch (up to 3 GB with CUDA) ..."
run_with_progress install "$package" || report_failure
touch "$venv/$kind"
[ "$kind" = run ] || touch "$venv/run"

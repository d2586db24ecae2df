#!/usr/bin/env bash
# Check the wheel of the last commit: its contents, and its commands in an empty environment.
#
#     tools/wheel_check.sh
#
# Takes a minute. Needs .venv (make setup), whose other packages the empty environment uses, and no network.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD python=$PWD/.venv/bin/python work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "wheel_check: $*" >&2; exit 1; }
run_without_pythonpath() { env -u PYTHONPATH "$@"; }

mkdir "$work/source"
git archive HEAD | tar -x -C "$work/source"
"$python" -m pip wheel -q --no-deps --no-build-isolation --no-index -w "$work" "$work/source"
wheel=$(ls "$work"/*.whl)

"$python" -c 'import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep="\n")' "$wheel" | sort >"$work/contents"
{
    git ls-tree -r --name-only HEAD resnet_recipes hydra_plugins | grep -E '\.(py|csv)$|/known/.*\.jpg$'
    git ls-tree -r --name-only HEAD recipes | sed 's,^,resnet_recipes/,'
} | sort >"$work/expected"
missing_files=$(comm -13 "$work/contents" "$work/expected")
[ -z "$missing_files" ] || fail "the wheel lacks $missing_files"
other_files=$(grep -v '\.dist-info/' "$work/contents" |
    grep -vE '^(resnet_recipes|hydra_plugins/resnet_recipes)/.*(\.(py|yaml|csv|css|js|json|jpg)|data/imagenet\.txt|native/libengine\.so|py\.typed|__init__\.pyi)$' || true)
[ -z "$other_files" ] || fail "the wheel has unexpected files: $other_files"
grep -q 'licenses/libjpeg-turbo.txt$' "$work/contents" || fail "the license of libjpeg-turbo is missing"
case $wheel in
*-py3-none-any.whl) ! grep -q '\.so$' "$work/contents" || fail "a wheel for any system has a library" ;;
*-py3-none-*) grep -q 'native/libengine\.so$' "$work/contents" || fail "a wheel for one system has no library" ;;
*) fail "$wheel is for one version of Python" ;;
esac

# Third-party contents: the plotting library, and libjpeg-turbo of the version that the library reports.
"$python" -c '
import json, sys, zipfile
from resnet_recipes.data.native import describe
wheel = zipfile.ZipFile(sys.argv[1])
(document,) = [name for name in wheel.namelist() if "/sboms/" in name]
parts = ["{name} {version} inside".format(**part) for part in json.loads(wheel.read(document))["components"]]
assert [name.split()[0] for name in parts[:3]] == ["vega", "vega-lite", "vega-embed"], parts
decoder = describe().split(", ")[-1] if any(name.endswith(".so") for name in wheel.namelist()) else ""
assert parts[3:] == [decoder] * decoder.endswith("inside"), (parts, decoder)
' "$wheel"

"$python" -c 'import pathlib, sys; from resnet_recipes.data import demo; demo.write(pathlib.Path(sys.argv[1]), 0, 2, 1)' "$work/images"
site_packages=$("$python" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])')

# create_environment NAME PACKAGE...: install into a fresh environment, which imports all requirements from .venv, and
# check the types of a user's script.
create_environment() {
    bin=$work/$1/bin
    "$python" -m venv --without-pip "$work/$1"
    # Python runs no .pth files in a folder that it adds like this
    echo "$site_packages" >"$(echo "$work/$1"/lib/python*/site-packages)/site_packages.pth"
    "$python" -m pip --python "$bin/python" install -q --no-deps --no-index "${@:2}"
    mkdir "$work/$1/empty"
    cd "$work/$1/empty"
    package_file=$(run_without_pythonpath "$bin/python" -c 'import resnet_recipes; print(resnet_recipes.__file__)')
    case $package_file in "$work"/*) ;; *) fail "Python imports another copy of the package: $package_file" ;; esac
    # reading torch's own types takes three times as long
    printf '[mypy]\nstrict = true\n[mypy-torch.*]\nfollow_imports = skip\n' >../mypy.ini
    (cd .. && "$python" -m mypy --cache-dir "$work/mypy" --python-executable "$bin/python" "$root/tests/tools/typed_script.py")
}

create_environment editable --no-build-isolation -e "$work/source"
create_environment installed "$wheel"
run_without_pythonpath "$bin/resnet-train" --list >"$work/list"
for recipe in "$root"/recipes/*.yaml; do
    grep -q "$(basename "$recipe" .yaml)" "$work/list" || fail "--list has no $recipe"
done
run_without_pythonpath "$bin/resnet-train" mild data="$work/images" bs=8 batch.bn_size=8 epochs=10 --dry-run >"$work/plan"
grep -q '10 epochs of 3 steps: 30 steps' "$work/plan" || fail "the plan is $(cat "$work/plan")"
[ -z "$(ls -A)" ] || fail "the commands created files: $(ls -A)"

# The Hydra application of docs/howto/hydra.md has the recipes.
mkdir conf
ln -s "$work/images" images
page=$root/docs/howto/hydra.md
sed -n '/^```yml$/,/^```$/p' "$page" | sed '/^```/d' >conf/config.yaml
sed -n '/^```python$/,/^```$/p' "$page" | sed '/^```/d' >app.py
sed -n 's/^python app.py \([^-]\)/\1/p' "$page" | while read -r arguments; do
    # shellcheck disable=SC2086
    run_without_pythonpath "$bin/python" app.py $arguments recipe.batch.global_size=8 recipe.batch.bn_size=8
done | awk '{print $1, $2, $3}' >application_output
printf 'hot decoupled_sgdw 810\nmild lamb 108\n' | cmp - application_output || fail "the Hydra application printed $(cat application_output)"
echo "the wheel is complete, and works in an empty environment: $(basename "$wheel")"

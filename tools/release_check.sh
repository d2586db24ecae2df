#!/usr/bin/env bash
# Check the metadata of a release: the changelog, the papers to cite, dependencies, workflows and the Docker image.
#
#     tools/release_check.sh
set -uo pipefail
shopt -s lastpipe         # so that a loop at the end of a pipe can set `status`
cd "$(dirname "$0")/.."

status=0
fail() { echo "release_check: $*" >&2; status=1; }
# fail_each TEXT: report each line of the input as a failure.
fail_each() { while read -r line; do fail "$1: $line"; done; }

mapfile -t sections < <(sed -n 's/^## \[\(.*\)\].*/\1/p' CHANGELOG.md)
[ "${sections[0]}" = Unreleased ] || fail "the first section of CHANGELOG.md is not Unreleased"
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' resnet_recipes/__init__.py)
[ "${#sections[@]}" = 1 ] || [[ " ${sections[*]} " = *" $version "* ]] || fail "CHANGELOG.md has no section $version"

list_papers() { grep -rhoE --include='*.py' --include='*.yaml' --include=CITATION.cff 'arXiv[: ][0-9]{4}\.[0-9]{5}' "$@" | tr ' ' : | sort -u; }
[ "$(list_papers resnet_recipes recipes | wc -l)" -gt 10 ] || fail "the search for papers finds fewer than 11"
comm -23 <(list_papers resnet_recipes recipes) <(list_papers CITATION.cff) | fail_each "CITATION.cff lacks"

tested_versions=$(sed -n 's/.*python: \[\(.*\)\]$/\1/p' .github/workflows/tests.yml | tr -d '", ')
classifier_versions=$(sed -n 's/.*:: Python :: \(3\.[0-9]*\)",$/\1/p' pyproject.toml | tr -d '\n')
[ "$tested_versions" = "$classifier_versions" ] || fail "CI tests Python $tested_versions, but the classifiers are $classifier_versions"
grep -q "^requires-python = \">=${tested_versions:0:4}\"$" pyproject.toml || fail "requires-python is not the oldest Python that CI tests"
grep -rhoE 'uses: [^.].*' .github/workflows | grep -vE '@[0-9a-f]{40}  # v[0-9.]+$' | fail_each "a workflow does not pin an action to a commit"
for workflow in .github/workflows/*.yml; do
    grep -A1 '^permissions:' "$workflow" | grep -q '^  contents: read$' || fail "$workflow has more than read permission"
done

page=docs/dependencies.md
.venv/bin/python -c '
import re, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = {name: packages for name, packages in project["optional-dependencies"].items() if name not in ("dev", "docs", "test")}
for each in (*project["dependencies"], *sum(extras.values(), [])):
    print(r"\b%s\b" % re.match(r"[\w-]+", each)[0])
print(*(r"^\| %s \|" % name for name in extras), sep="\n")
' | while read -r name; do grep -qP "$name" $page || echo "$name"; done | fail_each "$page lacks"

modules=$(grep -o 'resnet_recipes\.[a-z_.]*' mypy.ini | sort -u)
grep -q "^# $(wc -l <<<"$modules") modules " mypy.ini || fail "mypy.ini skips $(wc -l <<<"$modules") modules, but its comment has another number"
grep -xE 'resnet_recipes\.(api|data(\.base)?|methods(\.base)?|methods\.optimizers(\.base)?)' <<<"$modules" | fail_each "mypy.ini skips a public module"
tr . / <<<"$modules" | while read -r path; do [ -e "$path.py" ] || [ -e "$path/__init__.py" ] || echo "$path"; done | fail_each "mypy.ini skips a module that does not exist"

image_files=$(sed -n 's/^!//p' .dockerignore | sort | tr '\n' ' ')
[ "$image_files" = "LICENSE README.md hydra_plugins licenses pyproject.toml recipes resnet_recipes setup.py " ] || fail "the image is built from other files: $image_files"
last_stage=$(tac Dockerfile | sed '/^FROM /q')
grep -q '^USER [1-9]' <<<"$last_stage" || fail "the image runs as root"
! grep -qE 'gcc|g\+\+' <<<"$last_stage" || fail "the image has a compiler"

script=$(sed -n 's/^before-all = .*\(tools\/[a-z_]*\.sh\).*/\1/p' pyproject.toml)
turbo_version=$(sed -nE 's/^version=(\S+) commit=[0-9a-f]{40}$/\1/p' "$script")
grep -qF "builds libjpeg-turbo ${turbo_version:?} from source" <<<"$(tr "\n" " " <docs/howto/build_decoder.md)" || fail "docs/howto/build_decoder.md does not name libjpeg-turbo $turbo_version"
exit $status

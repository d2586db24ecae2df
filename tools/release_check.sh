#!/usr/bin/env bash
# Check the metadata of a release: the changelog, the papers to cite, dependencies, workflows and the Docker image.
#
#     tools/release_check.sh
set -uo pipefail
shopt -s lastpipe         # so that a loop at the end of a pipe can set `wrong`
cd "$(dirname "$0")/.."

wrong=0
fail() { echo "release_check: $*" >&2; wrong=1; }
# none WHAT: fail with each line of the input.
none() { while read -r line; do fail "$1: $line"; done; }

mapfile -t sections < <(sed -n 's/^## \[\(.*\)\].*/\1/p' CHANGELOG.md)
[ "${sections[0]}" = Unreleased ] || fail "CHANGELOG.md does not begin with what is unreleased"
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' resnet_recipes/__init__.py)
[ "${#sections[@]}" = 1 ] || [[ " ${sections[*]} " = *" $version "* ]] || fail "CHANGELOG.md has no section $version"

papers() { grep -rhoE --include='*.py' --include='*.yaml' --include=CITATION.cff 'arXiv[: ][0-9]{4}\.[0-9]{5}' "$@" | tr ' ' : | sort -u; }
[ "$(papers resnet_recipes recipes | wc -l)" -gt 10 ] || fail "no papers are found"
comm -23 <(papers resnet_recipes recipes) <(papers CITATION.cff) | none "CITATION.cff lacks"

tested=$(sed -n 's/.*python: \[\(.*\)\]$/\1/p' .github/workflows/tests.yml | tr -d '", ')
named=$(sed -n 's/.*:: Python :: \(3\.[0-9]*\)",$/\1/p' pyproject.toml | tr -d '\n')
[ "$tested" = "$named" ] || fail "tested are $tested, and the classifiers are $named"
grep -q "^requires-python = \">=${tested:0:4}\"$" pyproject.toml || fail "the oldest Python that is tested is not required"
grep -rhoE 'uses: [^.].*' .github/workflows | grep -vE '@[0-9a-f]{40}  # v[0-9.]+$' | none "not pinned to a commit:"
for workflow in .github/workflows/*.yml; do
    grep -A1 '^permissions:' "$workflow" | grep -q '^  contents: read$' || fail "$workflow may write"
done

page=docs/dependencies.md
.venv/bin/python -c '
import re, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = {name: own for name, own in project["optional-dependencies"].items() if name not in ("dev", "docs", "test")}
for each in (*project["dependencies"], *sum(extras.values(), [])):
    print(r"\b%s\b" % re.match(r"[\w-]+", each)[0])
print(*(r"^\| %s \|" % name for name in extras), sep="\n")
' | while read -r name; do grep -qP "$name" $page || echo "$name"; done | none "$page lacks"

modules=$(grep -o 'resnet_recipes\.[a-z_.]*' mypy.ini | sort -u)
grep -q "^# $(wc -l <<<"$modules") modules " mypy.ini || fail "mypy.ini leaves out $(wc -l <<<"$modules") modules, and says otherwise"
grep -xE 'resnet_recipes\.(api|data(\.base)?|methods(\.base)?|methods\.optimizers(\.base)?)' <<<"$modules" | none "the types of a public module are not checked"
tr . / <<<"$modules" | while read -r path; do [ -e "$path.py" ] || [ -e "$path/__init__.py" ] || echo "$path"; done | none "mypy.ini leaves out what is not there"

kept=$(sed -n 's/^!//p' .dockerignore | sort | tr '\n' ' ')
[ "$kept" = "LICENSE README.md hydra_plugins licenses pyproject.toml recipes resnet_recipes setup.py " ] || fail "the image is built from $kept"
last=$(tac Dockerfile | sed '/^FROM /q')
grep -q '^USER [1-9]' <<<"$last" || fail "the image runs as root"
! grep -qE 'gcc|g\+\+' <<<"$last" || fail "the image has a compiler"

script=$(sed -n 's/^before-all = .*\(tools\/[a-z_]*\.sh\).*/\1/p' pyproject.toml)
turbo=$(sed -nE 's/^version=(\S+) commit=[0-9a-f]{40}$/\1/p' "$script")
grep -qF "builds libjpeg-turbo ${turbo:?} from source" <<<"$(tr "\n" " " <docs/decoder.md)" || fail "docs/decoder.md does not name libjpeg-turbo $turbo"
exit $wrong

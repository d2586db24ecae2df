#!/usr/bin/env bash
# Check the documentation: it builds without a warning, every page is linked, and no page loads files from other sites.
#
#     tools/site_check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT

fail() { echo "site_check: $*" >&2; exit 1; }

NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet --site-dir "$site"
cd "$site"
mapfile -t pages < <(find . -name '*.html' ! -name 404.html ! -path ./index.html -printf '%P\n')
[ "${#pages[@]}" -gt 15 ] || fail "there are only ${#pages[@]} pages"
for page in "${pages[@]}"; do
    grep -qF "href=\"$page\"" index.html || fail "no link leads to $page"
done
! grep -E '<(script|link|img)[^>]*(src|href)="https?:' index.html "${pages[@]}" || fail "a page loads a file from another site"
! grep -E ' object at 0x|typing\.' reference/settings.html reference/methods.html || fail "a page shows the Python representation of a type"
[ "$(stat -c %s search/search_index.js)" -gt 100000 ] || fail "the search has no index"
grep -qF '<script src="iframe-worker.js"' index.html || fail "the search needs a server"
echo "the site has ${#pages[@]} pages, and loads no files from other sites"

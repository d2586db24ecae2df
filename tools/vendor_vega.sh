#!/bin/sh
# Write the plotting library of the report: Vega, Vega-Lite and vega-embed in one file, from npm.
# They are minified by their authors; a digest in the registry checks each download.
set -eu
page=$(cd "$(dirname "$0")/.." && pwd)/resnet_recipes/report/page
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --ignore-scripts --no-save vega@6.4.0 vega-lite@6.5.0 vega-embed@7.3.0
{
    echo "/* Vega 6.4.0, Vega-Lite 6.5.0, vega-embed 7.3.0: BSD-3-Clause, see licenses/vega.txt */"
    # the first file contains d3
    for file in vega/build/vega vega-lite/build/vega-lite vega-embed/build/vega-embed; do
        grep -v '^//# sourceMappingURL' "node_modules/$file.min.js"
        echo ";"
    done
} >"$page/vega.min.js"
for name in vega-view vega-lite vega-embed d3-array; do
    printf "%s\n\n" "$name"
    cat "node_modules/$name/LICENSE"
    echo
done >"$page/../../../licenses/vega.txt"

// Draw every plot from the specification next to it, in the colors of the page, which has the legends. SVG stays
// sharp on paper. Only errors are logged.
const views = [];
for (const plot of document.querySelectorAll(".plot")) {
  const drop = plot.dataset.legend === "page" ? "legend" : null;
  const spec = JSON.parse(
    document.getElementById(plot.dataset.spec).textContent, (key, value) => key === drop ? undefined : value);
  spec.background = "transparent";
  if (drop) spec.config.legend = {disable: true};
  vegaEmbed(plot, spec, {
    mode: "vega-lite", renderer: "svg", logLevel: 1,
    tooltip: {theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"},
    actions: {export: true, source: false, compiled: false, editor: false},
  }).then(({view}) => {
    views.push(view);
    plot.querySelector("summary").ariaLabel = `Save the plot: ${spec.description}`;
  });
}

// A box of a legend hides its run in the plots of the section.
document.addEventListener("change", ({target}) => {
  const section = target.closest("section");
  const off = [...section.querySelectorAll(".legend input:not(:checked)")].map(box => box.value);
  for (const view of views) if (section.contains(view.container())) view.signal("hidden", off).runAsync();
});

// Sort a table by the column whose heading is pressed: numbers by value; pressed again, in the other order.
function key(row, column) {
  const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent;
  return text === "" || isNaN(text) ? text : Number(text);
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const sign = head.ariaSort === "ascending" ? -1 : 1;
    for (const other of head.parentElement.cells) other.ariaSort = "none";
    head.ariaSort = sign === 1 ? "ascending" : "descending";
    const order = (a, b) => typeof a !== typeof b ? (typeof a === "number" ? -1 : 1) : sign * ((a > b) - (a < b));
    const rows = [...body.rows].sort((a, b) => order(key(a, head.cellIndex), key(b, head.cellIndex)));
    body.append(...rows);
  });
}

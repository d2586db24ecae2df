// Draw every plot from the specification next to it, if the page includes the plotting library. Only errors are logged.
for (const plot of document.querySelectorAll(".plot")) {
  const spec = JSON.parse(document.getElementById(plot.dataset.spec).textContent);
  vegaEmbed(plot, spec, {mode: "vega-lite", logLevel: 1, actions: {export: true, source: false, compiled: false, editor: false}});
}

// Sort a table by the column whose heading is clicked: numbers by value; a second click reverses the order.
function key(row, column) {
  const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent;
  return text === "" || isNaN(text) ? text : Number(text);
}

for (const head of document.querySelectorAll("th")) {
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0];
    const sign = (head.dataset.sign = head.dataset.sign === "1" ? "-1" : "1");
    const order = (a, b) => typeof a !== typeof b ? (typeof a === "number" ? -1 : 1) : sign * ((a > b) - (a < b));
    const rows = [...body.rows].sort((a, b) => order(key(a, head.cellIndex), key(b, head.cellIndex)));
    body.append(...rows);
  });
}

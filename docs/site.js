// What the theme leaves out for keyboards and screen readers: a name of its search, focus for what scrolls, and bars of
// buttons that are no landmarks.
document.querySelector(".md-search").ariaLabel = "Search";
new MutationObserver(() => {
  for (const wide of document.querySelectorAll(":is(pre > code, .md-typeset__scrollwrap):not([tabindex])")) wide.tabIndex = 0;
  for (const bar of document.querySelectorAll(".md-code__nav:not([role])")) bar.role = "presentation";
}).observe(document.body, {childList: true, subtree: true, attributeFilter: ["tabindex"]});

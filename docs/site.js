// Fixes of the theme for keyboards and screen readers: the search gets a name, scrolling blocks get focus, and bars of
// buttons are not landmarks.
document.querySelector(".md-search").ariaLabel = "Search";
new MutationObserver(() => {
  for (const wide of document.querySelectorAll(":is(pre > code, .md-typeset__scrollwrap):not([tabindex])")) wide.tabIndex = 0;
  for (const bar of document.querySelectorAll(".md-code__nav:not([role])")) bar.role = "presentation";
}).observe(document.body, {childList: true, subtree: true, attributeFilter: ["tabindex"]});

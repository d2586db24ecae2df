"""The report: one HTML file of plots and tables that needs no network."""

#: Start of a page by its kind, to recognize pages that a new one may replace.
REPORT_HEAD, GALLERY_HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    f'<meta name="generator" content="resnet-recipes {kind}">'
    for kind in ("report", "gallery")
)

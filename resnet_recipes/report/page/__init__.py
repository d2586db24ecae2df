"""The report: one HTML file of plots and tables that needs no network."""

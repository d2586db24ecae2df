"""The recorder that writes what these tests read."""

from tests.report.conftest import console, driver, facts, recorder, summary

__all__ = ["console", "driver", "facts", "recorder", "summary"]

"""The recorder that writes the files for these tests."""

from tests.report.conftest import console, driver, facts, recorder, summary

__all__ = ["console", "driver", "facts", "recorder", "summary"]

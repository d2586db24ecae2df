"""A terminal without a screen, for tests of printed output."""

import io


class TerminalStream(io.StringIO):
    """A stream that reports being a terminal."""

    def isatty(self):
        return True

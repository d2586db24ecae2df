"""A terminal without a screen, for tests of printed output."""

import io


class TerminalStream(io.StringIO):
    def isatty(self):
        return True

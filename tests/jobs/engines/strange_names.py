"""Names that a shell would interpret, for tests of all job scripts."""

STRANGE_NAMES = [
    "x$(touch OWNED).yaml",
    "a b.yaml",
    "-rf.yaml",
    "`touch OWNED`.yaml",
    'q"; touch OWNED; ".yaml',
    "n\ntouch OWNED\n.yaml",
    "'; touch OWNED; '.yaml",
    "caf\u00e9.yaml",
    "#.yaml",
    "%j.yaml",
]

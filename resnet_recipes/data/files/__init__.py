"""Images as files: class folders, and how one file becomes pixels."""

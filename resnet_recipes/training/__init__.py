"""One rank's training: from a built run to trained weights."""

#: Set by the launcher for the ranks of one machine: the file through which they meet.
STORE = "RESNET_RECIPES_STORE"

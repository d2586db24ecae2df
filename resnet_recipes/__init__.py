"""Train ResNet-50 and its family by recipe: the least time and money for a wanted accuracy."""

__version__ = "0.1.0"

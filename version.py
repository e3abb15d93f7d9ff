"""The version of this release; a file of its own, so that any module may import it."""

__version__ = "0.2.0"

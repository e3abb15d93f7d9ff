"""The version of this release. It has its own file, so that any module may import it."""

__version__ = "0.2.0"

"""The cleanup of everything that programs leave when they end. Begin with guardian.py."""

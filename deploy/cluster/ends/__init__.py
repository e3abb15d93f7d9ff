"""The cleanup of everything that programs leave when they end; begin with guardian.py."""

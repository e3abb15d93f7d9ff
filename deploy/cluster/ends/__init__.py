"""ends: ends programs and their leftovers together; begin with guardian.py."""

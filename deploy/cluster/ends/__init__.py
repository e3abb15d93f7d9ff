"""ends: how programs end, and what ends with them; begin with guardian.py."""

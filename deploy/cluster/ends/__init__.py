"""ends: removes what programs leave behind when they end. Begin with guardian.py."""

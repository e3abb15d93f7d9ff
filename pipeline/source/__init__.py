"""The source `format("oncelog")`. Begin with data_source.py, then offsets.py."""

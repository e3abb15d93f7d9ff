"""The source `format("oncelog")`; begin with data_source.py, then offsets.py."""

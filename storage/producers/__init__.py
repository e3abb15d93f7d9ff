"""storage/producers: what a partition knows of its producers; begin with state.py."""

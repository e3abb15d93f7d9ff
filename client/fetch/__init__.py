"""Reading, from a leader's answer to records; begin with fetcher.py and state.py."""

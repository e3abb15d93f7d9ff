"""Reading, from a leader's answer to records. Begin with fetcher.py and state.py."""

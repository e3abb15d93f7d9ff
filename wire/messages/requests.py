"""The requests that `control.decode_request` returns, for type checkers; see requests.pyi.

At run time they are generated from kio's schemas, one class for each version. A type here has the
fields of all versions. The stub is written by `python tests/tidy/test_message_types.py`.
"""

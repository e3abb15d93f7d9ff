"""The requests that `control.decode_request` gives, for type checkers: see requests.pyi.

At run time they are made from kio's schemas, one class for each version; a type has the fields of
all versions. The stub is written by `python tests/tidy/test_message_types.py`.
"""

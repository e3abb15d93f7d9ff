"""The types of the requests that `control.decode_request` returns, for type checkers.

At run time the classes are generated from kio's schemas, one class for each version. A type in
`requests.pyi` has the fields of all versions. `python tests/tidy/test_message_types.py` writes that
file.
"""

"""The types of the answers that `control.encode_response` accepts, for type checkers.

At run time answers are dictionaries. A type in `responses.pyi` has the fields of all versions. Each
version omits the fields it lacks, and absent fields get the schema's default. A field that may be
null in one version may be null in the type, although other versions refuse null.
"""

"""The answers that `control.encode_response` accepts, for type checkers; see responses.pyi.

At run time they are dictionaries. A type has the fields of all versions: each version omits fields
that it lacks, and absent fields get the schema's default. A field that is null in one version may
be null here, although other versions refuse that.
"""

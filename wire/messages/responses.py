"""The answers that `control.encode_response` takes, for type checkers: see responses.pyi.

At run time they are dictionaries. A type has the fields of all versions: each version leaves out
what it lacks, and what is absent takes the schema's default. A field that is null in one version
may be null here, though other versions refuse that.
"""

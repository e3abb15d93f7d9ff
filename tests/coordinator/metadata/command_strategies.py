"""Hypothesis strategies that draw any decodable command of the metadata log."""

import types
from dataclasses import fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from oncelog.coordinator.metadata.commands import KINDS, Command

# Values that msgpack can carry; short texts, so that some of them name existing things.
_SIMPLE = {
    int: st.one_of(st.integers(-2, 4), st.integers(-(2**63), 2**64 - 1)),
    str: st.one_of(st.sampled_from(["", "0", "1", "t"]), st.text("ab._-é", max_size=4)),
    bytes: st.one_of(st.just(bytes(16)), st.just(b"t" * 16), st.binary(max_size=17)),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[values_of(argument) for argument in arguments])
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=2)
    hints = get_type_hints(annotation)
    return st.builds(annotation, **{f.name: values_of(hints[f.name]) for f in fields(annotation)})


any_command: st.SearchStrategy[Command] = st.one_of([values_of(cls) for cls in KINDS.values()])

"""The program that runs a user's function: `python -m ... '{"module": ..., "name": ...}'`."""

import importlib
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any


def main() -> None:
    found = json.loads(sys.argv[1])
    sys.path[:] = found["path"]
    function: Any = module_of(found["module"], found["file"])
    for name in found["name"].split("."):
        function = getattr(function, name)
    function()


def module_of(name: str, file: str) -> ModuleType:
    """Import a module by its name, or from its file if the name leads to no module or another file.

    pytest's test modules, for example, may not be importable by their names.
    """
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin == file:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()

class error(Exception): ...

class Options:
    log_errors: bool
    max_mem: int
    never_capture: bool

class _Match:
    def __getitem__(self, group: int) -> str: ...

class _Regexp:
    groups: int
    programsize: int
    def fullmatch(self, text: str | bytes) -> _Match | None: ...

def compile(pattern: str | bytes, options: Options | None = None) -> _Regexp: ...
def purge() -> None: ...

"""The one exception that people are meant to read."""


class Failure(Exception):
    """Something a person has to know: one or two sentences (what, why, what next).

    The command line prints it without a traceback and leaves with `exit_code`.
    """

    def __init__(self, sentence: str, *, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code

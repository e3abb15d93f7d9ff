"""Is the extra `spark` installed? What is said where it is not."""

from importlib.util import find_spec


def require_spark() -> None:
    """ModuleNotFoundError, with the command that helps, where there is no pyspark."""
    if find_spec("pyspark") is None:
        raise ModuleNotFoundError(
            "oncelog.pipeline needs pyspark. In a checkout of oncelog: pip install '.[spark]'",
            name="pyspark",
        )

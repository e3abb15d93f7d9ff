"""The check that the extra `spark` is installed."""

from importlib.util import find_spec


def require_spark() -> None:
    """Raise ModuleNotFoundError with the command that installs pyspark, if it is missing."""
    if find_spec("pyspark") is None:
        raise ModuleNotFoundError(
            "oncelog.pipeline needs pyspark. In a checkout of oncelog: pip install '.[spark]'",
            name="pyspark",
        )

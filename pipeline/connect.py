"""The refusal of a DataFrame of Spark Connect, with which the exactly-once sink cannot work.

Over Connect a DataFrame is a plan that is sent to a server. Sources, writers and listeners work
over Connect. But a foreachBatch runs in another process of the server, without the query or its
checkpoint, and the exactly-once sink needs both.
"""

MODULE = "pyspark.sql.connect."


def refuse_connect(frame: object) -> None:
    """Raise RuntimeError, with a workaround, for a DataFrame of Spark Connect."""
    if type(frame).__module__.startswith(MODULE):
        raise RuntimeError(
            "the exactly-once sink needs a session in its own program, and this one is of Spark "
            "Connect, which runs foreachBatch elsewhere. Run the program by spark-submit, or by "
            'python with spark_session("...", master="spark://..."), on the same cluster. Over '
            'Connect format("oncelog") reads, and writes at least once'
        )

"""The audit: raw logs of any size judged on Spark, from batches and markers alone.

    python -m oncelog.proof.audit --topic orders --bootstrap HOST:PORT

Not here: histories of clients (`oncelog check`). Nothing is trusted that a broker derived from its
log: markers alone say which transactions committed. Begin with `pieces.py`, then `rules.py`.
"""

from ...pipeline.extra import require_spark

require_spark()

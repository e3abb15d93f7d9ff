"""The audit, which checks raw logs of any size on Spark, from batches and markers alone.

    python -m oncelog.proof.audit --topic orders --bootstrap HOST:PORT

Histories of clients are judged by `oncelog check`, not here. Data that a broker derived from its
log is not used, because markers alone show which transactions committed. Begin with `pieces.py`,
then `rules.py`.
"""

from ...pipeline.extra import require_spark

require_spark()

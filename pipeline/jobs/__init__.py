"""pipeline/jobs: programs on the source and the sink, each started as a process."""

from ..extra import require_spark

require_spark()

"""Programs that use the source and the sink, each a separate process."""

from ..extra import require_spark

require_spark()

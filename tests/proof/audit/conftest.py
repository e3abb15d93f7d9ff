"""The audit reads live topics of the pipeline's small cluster, too."""

from ...pipeline.conftest import admin, cluster  # noqa: F401 (fixtures)

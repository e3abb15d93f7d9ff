"""Fixtures of the audit's tests, some of which read topics of the pipeline's small cluster."""

from ...pipeline.conftest import admin, cluster  # noqa: F401 (fixtures)

"""Fixtures of the audit, which also reads live topics of the pipeline's small cluster."""

from ...pipeline.conftest import admin, cluster  # noqa: F401 (fixtures)

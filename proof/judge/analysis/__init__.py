"""judge/analysis: the common part of the checks: columns, orders of logs, evidence, findings."""

"""The common part of the checks: columns, the order of logs, evidence, and findings."""

"""The common part of the checks, with columns, orders of logs, evidence and findings."""

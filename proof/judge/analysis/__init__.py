"""judge/analysis: what the checks share: columns, orders of logs, evidence, findings."""

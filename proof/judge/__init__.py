"""judge: finds violations of Kafka's promises in a run's history, its logs, or a live topic.

history/ records the operations of clients, analysis/ is the common part of the checks, checks/ has
one file for each promise (J: records, A: transactions, W: logs, L: liveness), logs/ judges without
a history. These need numpy (extra `check`); contents.py, which the demo uses, does not. Begin with
catalogue.py, then analysis/view.py; docs/judge.md is for users.
"""

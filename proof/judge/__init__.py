"""judge: find a run's violations of the promises, in its history, its logs, or a live topic.

history/ records the operations of clients, analysis/ is the common part of the checks, checks/ has
one file a promise (J: records, A: transactions, W: logs, L: liveness), logs/ judges without a
history. These need numpy (extra `check`); contents.py, which the demo calls, does not. Begin with
catalogue.py, then analysis/view.py; docs/judge.md is for users.
"""

"""judge: what must hold of a run, and what does: from its history, its logs, or a live topic.

history/ is what clients did and saw, analysis/ what the checks share, checks/ one file a promise
(J: records, A: transactions, W: logs, L: liveness), logs/ what is judged without a history. These
need numpy (extra `check`); contents.py, which the demo calls, does not. Begin with
catalogue.py, then analysis/view.py; docs/judge.md is for users.
"""

"""deploy/checks: what must hold of a history, one file a promise; needs numpy (extra `check`).

What it is: pure functions from a view of a history (view.py) to findings with their evidence; the
list of all of them is catalogue.py, the judge that runs them is verdict.py. What it is not: a
recorder (deploy/history_recorder.py) or a reader of live topics (deploy/topic_audit.py). Begin with
view.py and j4_lost_write.py; definitions and the proof that the judge sees are in docs/judge.md.
"""

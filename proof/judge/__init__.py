"""The judge, which finds violations of Kafka's promises in histories, logs and live topics.

history/ records the operations of clients, and analysis/ is the common part of the checks. checks/
has one file for each promise (J for records, A for transactions, W for logs, L for liveness). logs/
judges without a history. These folders need numpy (extra `check`), and contents.py, which the demo
uses, does not. Begin with catalogue.py, then analysis/view.py. Users read docs/judge.md.
"""

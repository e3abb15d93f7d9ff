"""A transaction over Kafka and a database. Kafka commits it if and only if the database has.

protocol.py and check_back.py are pure state machines that return the next step. decision_table.py
has the SQL of the decision table, which has the outcomes of transactions. writer.py and
blocking_writer.py execute the steps.
"""

"""A transaction over Kafka and a database, which the commit of the database decides.

protocol.py and check_back.py are pure state machines that return the next step. decision_table.py
has the SQL of the decision table. writer.py and blocking_writer.py execute the steps.
"""

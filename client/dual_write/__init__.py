"""dual_write: one transaction over Kafka and a database, decided by the commit of the database.

protocol.py and check_back.py are pure state machines that return the next step. decision_table.py
has the SQL of the table of decisions. writer.py and blocking_writer.py execute the steps.
"""

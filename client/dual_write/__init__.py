"""dual_write: one transaction over Kafka and a database, decided by the commit of the database.

protocol.py and check_back.py hold the tables of decisions, decision_table.py the SQL; writer.py
and blocking_writer.py execute them.
"""

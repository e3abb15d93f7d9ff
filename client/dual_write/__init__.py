"""dual_write: one transaction over Kafka and a database, decided by the commit of the database.

What decides stands in the tables protocol.py and check_back.py, what the database is asked in
decision_table.py; writer.py and blocking_writer.py carry it out.
"""

"""client/transactions: a producer's states, its transactions, its reactions to errors."""

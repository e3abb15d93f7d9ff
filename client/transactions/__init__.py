"""client/transactions: a producer's states, its transactions, what errors mean to them."""

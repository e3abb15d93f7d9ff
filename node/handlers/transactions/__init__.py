"""node/handlers/transactions: transactional producers, markers, hanging transactions."""

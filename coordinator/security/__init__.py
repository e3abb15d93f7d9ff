"""Who may do what: principals, and what the replicated metadata says of them."""

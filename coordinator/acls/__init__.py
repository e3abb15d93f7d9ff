"""Access control lists (ACLs), with an index by principal and Kafka's authorization rules."""

"""The bodies of Kafka messages: hand-written Produce and Fetch, kio for everything else."""

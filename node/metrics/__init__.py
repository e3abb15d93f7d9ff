"""The figures of one broker for Prometheus and its kin, in Kafka's names where Kafka has them."""

"""node/metrics: a broker's metrics for Prometheus, under Kafka's names where Kafka has them."""

"""A broker's metrics for Prometheus, under Kafka's names if Kafka has the metric."""

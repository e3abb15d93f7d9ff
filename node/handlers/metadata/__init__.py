"""The APIs of the cluster, of its topics, and of their replicas and configurations."""

"""node/handlers/metadata: the cluster, its topics, their replicas and configurations."""

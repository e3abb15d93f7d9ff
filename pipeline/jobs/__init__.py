"""pipeline/jobs: programs on the source and the sink, each started as a process."""

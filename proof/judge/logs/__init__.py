"""judge/logs: logs and the files beside them, judged without any client's history."""

"""The engines that the demo can strike."""

from .spark_engine import SparkEngine
from .worker_engine import WorkerEngine

Engine = WorkerEngine | SparkEngine

"""The engines of the demo, by name."""

from .spark_engine import SparkEngine
from .worker_engine import WorkerEngine

Engine = WorkerEngine | SparkEngine

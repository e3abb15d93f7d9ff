"""Import kafka-python without its warnings, which pytest would treat as errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.errors
    import kafka.protocol.consumer.fetch
    import kafka.protocol.producer.produce
    import kafka.record.default_records  # noqa: F401

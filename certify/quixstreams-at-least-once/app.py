"""Orders become invoices, with Quix Streams."""

import os

from quixstreams import Application

app = Application(
    broker_address=os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    consumer_group=os.environ["ONCELOG_GROUP"],
    auto_offset_reset="earliest",
    processing_guarantee=os.environ["GUARANTEE"],
    state_dir=os.environ["STATE"],
)
orders = app.topic(os.environ["ONCELOG_IN"], value_deserializer="json")
invoices = app.topic(os.environ["ONCELOG_OUT"], value_serializer="json")
app.dataframe(orders).to_topic(invoices)
if __name__ == "__main__":
    app.run()

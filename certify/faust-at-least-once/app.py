"""Orders become invoices, with Faust: `python app.py worker`."""

import os

import faust

servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"].split(",")
app = faust.App(
    os.environ["ONCELOG_GROUP"],
    broker=[f"kafka://{server}" for server in servers],
    processing_guarantee=os.environ["GUARANTEE"],
    datadir=f"{os.environ['STATE']}/{os.environ['ONCELOG_INSTANCE']}",
)
orders = app.topic(
    os.environ["ONCELOG_IN"], key_type=bytes, value_type=bytes, value_serializer="raw"
)
invoices = app.topic(
    os.environ["ONCELOG_OUT"], key_type=bytes, value_type=bytes, value_serializer="raw"
)


@app.agent(orders)
async def invoicing(stream):
    """Write an invoice for each order."""
    async for key, value in stream.items():
        await invoices.send(key=key, value=value)


if __name__ == "__main__":
    app.main()

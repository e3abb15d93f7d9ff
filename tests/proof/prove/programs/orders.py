"""The inputs of the routing application and of the sums, and their expected outputs."""

import json
from collections import Counter


def feed(number, each):
    return f"c{number % 20}", json.dumps({"id": each, "amount": number % 97})


def totals(inputs):
    sums = Counter()
    for record in inputs:
        sums[record.key.decode()] += json.loads(record.value)["amount"]
    return sums


def pairs(number, each):
    """Return an order and its payment, each in its own topic. Some have the amount 0."""
    body = json.dumps({"id": each, "amount": number % 97})
    return [("orders", f"{each}-order", body), ("payments", f"{each}-payment", body)]


def routed(inputs):
    """Yield (topic, id) of the expected output of each input, except those with amount 0."""
    for record in inputs:
        amount = json.loads(record.value)["amount"]
        if amount:
            yield ("large" if amount >= 50 else "small"), record.key.decode()

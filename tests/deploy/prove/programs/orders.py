"""What the sums are fed with, and held to."""

import json
from collections import Counter


def feed(number, each):
    return f"c{number % 20}", json.dumps({"id": each, "amount": number % 97})


def totals(inputs):
    sums = Counter()
    for record in inputs:
        sums[record.key.decode()] += json.loads(record.value)["amount"]
    return sums

"""Orders become invoices: a dataflow of Bytewax."""

import os

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow

BROKERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"].split(",")
flow = Dataflow("invoices")
orders = kop.input("orders", flow, brokers=BROKERS, topics=[os.environ["ONCELOG_IN"]])
op.inspect("errors", orders.errs).then(op.raises, "crash")
invoices = op.map("invoice", orders.oks, lambda order: KafkaSinkMessage(order.key, order.value))
kop.output("invoices", invoices, brokers=BROKERS, topic=os.environ["ONCELOG_OUT"])

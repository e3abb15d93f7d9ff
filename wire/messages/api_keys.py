"""The keys of Kafka's APIs by name; for type checkers with request and answer: see api_keys.pyi."""

from .apis import APIS

globals().update({api.module.upper(): key for key, api in APIS.items()})

"""The keys of Kafka's APIs by name, to which api_keys.pyi adds the types of request and answer."""

from .apis import APIS

globals().update({api.module.upper(): key for key, api in APIS.items()})

"""For tests of your own: a real broker in a `with` block, and a pytest fixture `barnabas_broker`."""

from barnabas.testing.broker import Broker

__all__ = ["Broker"]

"""Simulations tell of every fault that they make up: only what a broker reports as an error is listened to."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _without_the_warnings_of_brokers() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)

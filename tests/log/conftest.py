"""Lets failed assertions of what the tests of the log share say what they compared."""

import pytest

pytest.register_assert_rewrite("tests.log.batches")

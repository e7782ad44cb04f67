"""Transactions in a log: the markers that end them, which were aborted, and which are asked after."""

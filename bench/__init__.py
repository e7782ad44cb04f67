"""Measures Barnabas beside Apache Kafka in one run on one machine. `make bench` runs `python -m bench`.

Nothing under src/ is imported here: the brokers are processes behind a socket, and the clients are neutral
(librdkafka, or frames encoded beforehand). What is measured is what any other client would see.
"""

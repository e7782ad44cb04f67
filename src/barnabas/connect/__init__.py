"""Connectors: named sources and sinks, declared in a TOML file and run on Spark by `barnabas connect run FILE`."""

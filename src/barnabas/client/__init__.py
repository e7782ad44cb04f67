"""The client library: Producer and Consumer for records and columns, Admin for everything else.

People import its names from `barnabas`, which loads each when it is first used.
"""

"""`python -m barnabas` is the command `barnabas`, for where the PATH does not have it."""

from barnabas.cli.main import run

run()

"""What every metadata store promises its broker, whatever keeps the changes."""

from barnabas.errors import BarnabasError, reason_of


class StoreFailed(BarnabasError):
    """The store takes no change any more in this process; what became of the last one is not known."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(
            f"The metadata store {path} cannot be written any more: {reason_of(error)}. "
            "Repair the disk, then start again."
        )

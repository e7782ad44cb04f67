"""The port to where the cluster's state lasts: commits, a feed of changes, brokers that come and go, leadership. PURE.

`broker.metadata` drives one. Adapters: `cluster.local` (a file, for one broker) and `barnabas.testing.store`
(for simulations); tests/cluster/test_store_contract.py holds every one of them to what is said here. Calls may block;
they come one at a time, off the event loop.

- `image` is the newest that this store has seen. Its version only grows.
- The store of the controller sees everything. The others may see no more than the cluster's id, its controller and the
  settings of topics and brokers: the controller tells their brokers the rest (`cluster.announcements`).
- Listeners hear of new images in the order of versions, one event at a time, from a thread of the store's choosing.
  Some may be left out on the way to a newer one, as after a lost connection: `image.since` says what is different.
- What `commit` gives back is there after a crash, and on its way to the listeners of every store that sees it.
- Only the broker whose claim holds commits. Its epoch goes with every commit: a deposed controller changes nothing.
- Brokers are there for as long as their store is; its end, or that of its session, takes them and their claim away.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.cluster.image import BrokerEpoch, BrokerImage, Change, ClusterImage, ControllerEpoch, Version
from barnabas.errors import BarnabasError, reason_of
from barnabas.types import BrokerId, TopicPartition


class Update(NamedTuple):
    """The cluster is like this now. `is_whole` says that everything was read again, as after a lost connection."""

    image: ClusterImage
    is_whole: bool = False


class ClaimLost(NamedTuple):
    """This store's broker is not the controller any more."""

    epoch: ControllerEpoch


class IsrChanged(NamedTuple):
    """The in-sync replicas of these partitions were changed by their leaders."""

    partitions: tuple[TopicPartition, ...]


class DirectoryFailed(NamedTuple):
    """A data directory of a broker is offline: some of its partitions need another leader."""

    broker: BrokerId


class TopicSettings(NamedTuple):
    """A topic has other settings now: for brokers that are told of topics by the controller and not by their store."""

    name: str
    configs: Mapping[str, str]


class Registered(NamedTuple):
    """The broker is there again after its session had ended, in an epoch of its own: another life."""

    epoch: BrokerEpoch


class ReassignmentWanted(NamedTuple):
    """A tool has asked through the store for partitions to be moved: told to the controller."""

    partitions: Mapping[TopicPartition, tuple[BrokerId, ...]]


class ElectionWanted(NamedTuple):
    """A tool has asked through the store for partitions to be led by their preferred leaders."""

    partitions: tuple[TopicPartition, ...]


Notice: TypeAlias = IsrChanged | DirectoryFailed
"""What a broker tells the controller through the store."""

Wish: TypeAlias = ReassignmentWanted | ElectionWanted
Event: TypeAlias = Update | ClaimLost | TopicSettings | Registered | Notice | Wish
Subscriber: TypeAlias = Callable[[Event], None]


class StoreFailed(BarnabasError):
    """The store takes no change any more in this process; what became of the last one is not known."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(
            f"The metadata store {name} cannot be written any more: {reason_of(error)}. "
            "Repair the disk, then start again."
        )


class Stale(BarnabasError):
    """A commit was decided on an image that is not the newest: nothing has changed, and `image` is newer now."""


class Deposed(BarnabasError):
    """A commit of a broker that is not the controller: nothing has changed."""


class OutcomeUnknown(BarnabasError):
    """The connection was lost while a change was made: it may last or not, and the next Update tells."""


class Store(Protocol):
    """Where the cluster's state lasts."""

    @property
    def name(self) -> str:
        """The path or address of the store, for messages."""

    @property
    def image(self) -> ClusterImage:
        """The newest image that was seen."""

    def subscribe(self, listener: Subscriber) -> None:
        """Tell this listener of all that happens from here on."""

    def register(self, broker: BrokerImage) -> BrokerEpoch:
        """Say that a broker is there. Its epoch is the store's to give, and larger than any before."""

    def claim(self, broker: BrokerId, over: BrokerId | None = None) -> ControllerEpoch | None:
        """Make a registered broker the controller, in an epoch larger than any before; None where another one is.

        `over` is the controller whose process is proven dead: its claim, and no other, is taken though its session has
        not ended. That is safe, wrong or not: its epoch is older, so it can commit nothing.
        """

    def commit(self, changes: Sequence[Change], expected_version: Version) -> ClusterImage:
        """Make changes last that were decided on the image of this version; the image that they lead to.

        All of them last, or none; only where changes of partitions are too many for one step may an adapter take
        several, for each partition stands for itself. A version that is not the newest is refused (Stale) if anything
        that the changes touch is different since; an adapter that cannot tell may always refuse it. An OSError says
        that nothing has changed and that the same may work later. The classes above say what else can happen.
        """

    def topic_configs(self, names: Sequence[str]) -> list[Mapping[str, str]]:
        """The settings that topics have in the store, for a broker that the controller tells of them.

        An adapter whose every broker sees every topic answers from its image; one that is not there has no settings.
        """

    def tell(self, notice: Notice) -> None:
        """Tell the controller something; without one the notice waits for the next."""

    def close(self) -> None:
        """End the store in this process, and with it the brokers that it has registered."""

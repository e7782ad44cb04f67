"""What coordinators know of topics, read from the cluster's image where it is asked for: nothing is copied.

Called by `groups` with each image. The mapping stays the same object for as long as no fact is different: groups look
again at what they have shared out when they are given another one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.cluster.image import ClusterImage, Topics
from barnabas.coordinator.effects import TopicChanges, TopicFacts, topic_changes


class ImageFacts(Mapping[str, TopicFacts]):
    """Immutable: id and number of partitions of each topic of an image."""

    __slots__ = ("_found", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._found: dict[str, TopicFacts] = {}
        """What was asked for, because it is asked for with every commit: 1 us less each."""

    def __getitem__(self, name: str) -> TopicFacts:
        found = self._found.get(name)
        if found is None:
            topic = self._topics[name]
            found = self._found[name] = TopicFacts(topic.id, len(topic.partitions))
        return found

    def get(self, name: str, default: Any = None) -> Any:
        found = self._found.get(name)
        return found if found is not None else super().get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


def next_facts(
    facts: Mapping[str, TopicFacts], noted: ClusterImage | None, image: ClusterImage
) -> tuple[Mapping[str, TopicFacts], TopicChanges]:
    """The facts of an image, and how they differ from those that are known, of the image `noted`."""
    after = ImageFacts(image.topics)
    names = image.since(noted).topics
    was = {name: facts[name] for name in names if name in facts}
    now = {name: after[name] for name in names if name in after}
    return (facts if was == now else after), topic_changes(was, now)

"""Producers at work in a `World`, and what is judged: no aborted or uncommitted record is ever read as committed, none
is lost, none is doubled, none is out of order, and nothing stays open once the faults have ended.

A producer lives until it is fenced, or until the next one begins though it is still there.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

from barnabas.coordinator.transactions.requests import Add, End, Init
from barnabas.coordinator.transactions.transaction import Producer
from barnabas.errors import Code, Refused
from tests.coordinator.transactions.world import ID, OFFSETS, PARTITIONS, World

FAULTS_MS = 12_000
CALM_MS = 30_000
TIMEOUT_MS = 2_000
PATIENCE_MS = 600
"""How long a producer waits for an answer before it asks again."""

COME_AGAIN = {Code.NOT_COORDINATOR, Code.CONCURRENT_TRANSACTIONS}
FATAL = {Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING}


class Asked(NamedTuple):
    """A request of a producer: where it goes, and what it is."""

    kind: str
    what: tuple[Any, ...]


class Attempt:
    """Mutable: one transaction, and what its producer was told of its end: None while it does not know."""

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.stored: list[int] = []
        self.asked: bool | None = None
        self.told: bool | None = None
        self.offset: int | None = None


Steps = Generator[Asked, Any, None]


class Client:
    """Mutable: a producer, one request at a time, each sent again until it is answered."""

    def __init__(self, run: "Run") -> None:
        self._run = run
        self._steps = self._live()
        self._asked: Asked | None = None
        self._number = 0
        self._sent = 0
        self._sequences = [0] * PARTITIONS
        self.is_over = False

    def start(self) -> None:
        self._go_on(None)

    def _go_on(self, answer: Any) -> None:
        try:
            self._asked = self._steps.send(answer)
        except StopIteration:
            self.is_over = True
            return
        self._number += 1
        self._send(self._number)

    def _send(self, number: int) -> None:
        if number != self._number or self.is_over:
            return
        world, asked = self._run.world, self._asked
        assert asked is not None
        self._sent += 1
        sent = self._sent
        world.post(lambda: self._deliver(asked, number))
        world.at(PATIENCE_MS, lambda: self._send(number) if sent == self._sent else None)

    def _deliver(self, asked: Asked, number: int) -> None:
        world = self._run.world
        if world.version < 2 and number != self._number:
            return  # before KIP-890 only its connection kept a late request from the next transaction

        def reply(answer: Any) -> None:
            world.post(lambda: self._hear(number, answer))

        if asked.kind == "coordinator":
            world.coordinator.ask(asked.what[0], reply)
        elif asked.kind == "produce":
            index, *what = asked.what
            world.partitions[index].produce(*what, reply)
        elif asked.kind == "offsets":
            producer, offset = asked.what
            world.offsets.commit(producer, offset, reply)
        else:
            world.at(3 * TIMEOUT_MS, lambda: reply(None))

    def _hear(self, number: int, answer: Any) -> None:
        if number != self._number or self.is_over:
            return
        if isinstance(answer, Refused) and answer.code in COME_AGAIN:
            self._run.world.at(50, lambda: self._send(number))
            return
        self._number += 1
        self._go_on(answer)

    def _live(self) -> Steps:
        run = self._run
        answer = yield Asked("coordinator", (Init(ID, TIMEOUT_MS),))
        if isinstance(answer, Refused):
            return
        producer: Producer = answer.producer
        while not run.world.is_calm or run.transactions_left:
            if run.world.is_calm:
                run.transactions_left -= 1
            following = yield from self._transaction(producer)
            if following is None:
                return
            producer = following

    def _transaction(self, producer: Producer) -> Generator[Asked, Any, Producer | None]:
        run, dice = self._run, self._run.world.dice
        attempt = run.attempt(dice.randint(1, 4))
        if run.world.version >= 2:
            self._sequences = [0] * PARTITIONS
        sequences = self._sequences
        is_whole = True
        for value in attempt.values:
            index = dice.randrange(PARTITIONS)
            answer = yield from self._joined(producer, index)
            if not isinstance(answer, Refused):
                answer = yield Asked("produce", (index, producer, sequences[index], value))
            if isinstance(answer, Refused):
                if answer.code in FATAL:
                    return None
                is_whole = False
                break
            sequences[index] += 1
            attempt.stored.append(value)
        if is_whole and dice.random() < 0.5:
            attempt.offset = attempt.values[-1]
            answer = yield from self._joined(producer, OFFSETS)
            if not isinstance(answer, Refused):
                answer = yield Asked("offsets", (producer, attempt.offset))
            if isinstance(answer, Refused):
                if answer.code in FATAL:
                    return None
                is_whole = False
        if dice.random() < 0.05:
            # It stops here, and hears of its timeout later.
            run.world.happened.add("slow")
            yield Asked("wait", ())
        return (yield from self._end(producer, attempt, is_whole and dice.random() < 0.7))

    def _joined(self, producer: Producer, index: int) -> Generator[Asked, Any, Any]:
        """Add a partition to the transaction, where producing to it does not."""
        version = self._run.world.version
        if version >= 2:
            return None
        return (yield Asked("coordinator", (Add(ID, producer, frozenset({("p", index)}), version),)))

    def _end(
        self, producer: Producer, attempt: Attempt, commit: bool
    ) -> Generator[Asked, Any, Producer | None]:
        if not attempt.stored and commit:
            commit = False
        attempt.asked = commit
        version = self._run.world.version
        answer = yield Asked("coordinator", (End(ID, producer, commit, version),))
        if isinstance(answer, Refused) and answer.code is Code.TRANSACTION_ABORTABLE:
            self._run.world.happened.add("timed out")
            commit = False
            answer = yield Asked("coordinator", (End(ID, producer, False, version),))
        if isinstance(answer, Refused):
            self._run.world.happened.add(f"end: {answer.code.name}")
            return None
        attempt.told = commit
        following: Producer = answer
        return following


class Run:
    """Mutable: one seed's run."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, version=0 if seed % 4 == 0 else 2)
        self.attempts: list[Attempt] = []
        self.transactions_left = 3
        """How many transactions have to succeed when the faults have ended."""
        self._values = 0
        self.read: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.shown: set[int] = set()
        self.clients: list[Client] = []

    def attempt(self, size: int) -> Attempt:
        values = list(range(self._values, self._values + size))
        self._values += size
        made = Attempt(values)
        self.attempts.append(made)
        return made

    def go(self) -> "Run":
        world = self.world
        self._begin_client()
        self._watch()
        self._misfortune()
        world.run(FAULTS_MS)
        world.is_calm = True
        world.run(FAULTS_MS + CALM_MS)
        self._judge()
        return self

    def _begin_client(self) -> None:
        client = Client(self)
        self.clients.append(client)
        client.start()

    def _watch(self) -> None:
        """Read what is committed; begin another producer where none is left, and sometimes though one is."""
        world = self.world
        for index, partition in enumerate(world.partitions):
            self.read[index] |= set(partition.readable())
        self.shown.add(world.offsets.shown())
        is_left = any(not client.is_over for client in self.clients)
        must_go_on = not world.is_calm or self.transactions_left
        if must_go_on and (not is_left or (not world.is_calm and world.dice.random() < 0.02)):
            world.happened.add("zombie" if is_left else "next")
            self._begin_client()
        world.at(100, self._watch)

    def _misfortune(self) -> None:
        world = self.world
        if world.is_calm:
            return
        if world.dice.random() < 0.5:
            world.fail_over()
        else:
            world.dice.choice(world.partitions).lead_anew()
        world.at(world.dice.randint(1, 1500), self._misfortune)

    def _judge(self) -> None:
        world = self.world
        places: dict[int, int] = {}
        for index, partition in enumerate(world.partitions):
            assert partition.last_stable == len(partition.entries), f"partition {index} has one open for ever"
            values = partition.readable()
            assert len(values) == len(set(values)), f"partition {index} has a record twice"
            assert values == sorted(values), f"partition {index} is out of order"
            assert self.read[index] <= set(values), f"partition {index} has shown what was not committed"
            places.update(dict.fromkeys(values, index))
        for attempt in self.attempts:
            self._judge_attempt(attempt, places)
        assert self.transactions_left == 0, "producers are stuck"
        self._judge_offsets(places)

    def _judge_attempt(self, attempt: Attempt, places: dict[int, int]) -> None:
        there = [value for value in attempt.values if value in places]
        if attempt.told is True:
            assert there == attempt.stored == attempt.values, (
                f"{attempt.values}: committed, there are {there}"
            )
        elif attempt.told is False or attempt.asked is not True:
            assert there == [], f"{attempt.values}: not committed, there are {there}"
        else:
            assert there in ([], attempt.stored), f"{attempt.values}: of {attempt.stored} there are {there}"

    def _judge_offsets(self, places: dict[int, int]) -> None:
        world = self.world
        committed = {
            attempt.offset
            for attempt in self.attempts
            if attempt.offset is not None and attempt.values[0] in places
        }
        assert self.shown - {-1} <= committed, "an offset was shown that was not committed"
        assert not world.offsets.group.pending, "an offset is pending for ever"
        assert world.offsets.shown() == max(committed, default=-1)


def run(seed: int) -> Run:
    return Run(seed).go()

"""A broker of a simulation: the shell around the production machines and a real log on a simulated disk.

It does what `broker/partitions` and `broker/replication` do, without asyncio: it serves fetches and produces, fetches
itself, flushes, writes checkpoints, and dies in any of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.cluster.image import NO_BROKER, PartitionImage
from barnabas.config import TopicConfig
from barnabas.disk import read_whole, write_atomically
from barnabas.errors import Code, Refused
from barnabas.log.flush import Flush
from barnabas.log.log import Log
from barnabas.replication.following import (
    AdvanceStart,
    Append,
    Effect,
    FetchAnswer,
    FetchPosition,
    Following,
    StartOver,
    Truncate,
)
from barnabas.replication.histories import Divergence, divergence
from barnabas.replication.leadership import IsrWish, Leadership
from barnabas.testing.disk import PowerCut, SimulatedDisk, Survival
from barnabas.types import NO_OFFSET, BrokerEpoch, BrokerId, Offset, PartitionEpoch
from barnabas.wire.batch import headers
from tests.replication.simulated.controller import Announcement, SimulatedController
from tests.replication.simulated.judge import Judge
from tests.replication.simulated.world import Network, World

FOLDER = "data/topic-0"
RECOVERY_POINT = "data/recovery-point"
WATERMARK = "data/high-watermark"
LAG_MS = 200
BACKOFF_MS = 60
HEARTBEAT_MS = 40
POLL_MS = 15
ANSWER_MS = 60
CHECKPOINT_MS = 150
MOST_BYTES = 600


@dataclass
class Waiting:
    """A produce that waits for the watermark."""

    value: bytes
    first: Offset
    upto: Offset


class SimulatedBroker:
    """Mutable: one broker through all of its lives."""

    def __init__(
        self,
        number: int,
        world: World,
        network: Network,
        controller: SimulatedController,
        judge: Judge,
        settings: TopicConfig,
    ) -> None:
        self.number = number
        self.id = BrokerId(number)
        self._world = world
        self._network = network
        self._controller = controller
        self._judge = judge
        self._settings = settings
        self.peers: dict[int, SimulatedBroker] = {}
        self.disk = SimulatedDisk()
        self.life = 0
        self.is_up = False
        self.is_paused = False
        self.survived = True
        self.is_damaged = False
        """Whether an fsync failed: what lies in the page cache is not on the disk, and never will be."""
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._forget()

    def _forget(self) -> None:
        self.log: Log
        self.role: Leadership | Following | None = None
        self.state: PartitionImage | None = None
        self.high_watermark = Offset(0)
        self._epoch = BrokerEpoch(-1)
        self._version = -1
        self._live: dict[BrokerId, BrokerEpoch] = {}
        self._waiting: list[Waiting] = []
        self._asked: tuple[FetchPosition, int] | None = None
        self._is_flushing = False
        self._shown = Offset(0)

    # Lives

    def start(self) -> None:
        """Begin a life with what the disk has."""
        self.life += 1
        self.is_up, self.is_paused, self.is_damaged = True, False, False
        self._forget()
        self._guarded(self._open)

    def _open(self) -> None:
        self.disk.make_dir(FOLDER)
        for folder in ("", "data"):
            self.disk.sync_dir(folder)
        recovery_point = self._read(RECOVERY_POINT)
        self.log = Log.open(
            self.disk, FOLDER, self._settings, now=self._world.now, recovery_point=recovery_point
        )
        if self.log.unflushed >= self._settings.flush_messages:
            self.log.flush()
        self.high_watermark = min(self._read(WATERMARK), self.log.end)
        self._world.note("start", self.number, self.log.end, self.high_watermark, self.survived)
        self._beat()
        self._poll()
        self._later(CHECKPOINT_MS, self._checkpoint)

    def kill(self) -> None:
        """End the process: what it wrote stays in the page cache."""
        self._world.note("kill", self.number)
        self.is_up = False
        self.life += 1
        self._inbox.clear()

    def cut_power(self, survival: Survival) -> None:
        """End the machine: what was not synced is lost, in part or whole."""
        self._world.note("power cut", self.number, survival.value)
        self.kill()
        self.disk = self.disk.crash(survival, self._world.random.getrandbits(32))
        self.survived = False

    def pause(self) -> None:
        self._world.note("pause", self.number)
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        inbox, self._inbox = self._inbox, []
        for call, args in inbox:
            self.deliver(call, args)

    def deliver(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.is_up:
            return
        if self.is_paused:
            self._inbox.append((call, args))
            return
        self._guarded(call, *args)

    def _guarded(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except PowerCut:
            self.disk.stop_at = None
            self.cut_power(self._world.random.choice(list(Survival)))
        except (Refused, OSError) as error:
            if isinstance(error, Refused) and error.code is not Code.KAFKA_STORAGE_ERROR:
                raise
            # A broker whose only directory has failed halts. What its page cache shows is not to be believed.
            self._world.note("halt", self.number, str(error))
            self.cut_power(Survival.NOTHING)

    def _later(self, delay: int, call: Callable[[], None]) -> None:
        self._world.after(delay, self._timer, self.life, call)

    def _timer(self, life: int, call: Callable[[], None]) -> None:
        if life == self.life:
            self.deliver(call, ())

    def _read(self, path: str) -> Offset:
        return Offset(int(read_whole(self.disk, path)) if self.disk.exists(path) else 0)

    def _write_down(self, path: str, offset: Offset) -> None:
        write_atomically(self.disk, path, b"%d" % offset)

    # What the controller says

    def _beat(self) -> None:
        controller = self._controller
        self._network.send(self.number, controller, self._heartbeat, self.life, self._epoch, self.survived)
        if isinstance(self.role, Leadership):
            self._moved(self.role.tick(self._world.now))
            self._send_wish()
        self._later(HEARTBEAT_MS, self._beat)

    def _heartbeat(self, life: int, epoch: BrokerEpoch, survived: bool) -> None:
        self._controller.heartbeat(self.id, life, epoch, survived=survived)

    def registered(self, incarnation: int, epoch: BrokerEpoch) -> None:
        if incarnation == self.life and epoch > self._epoch:
            self._epoch = epoch
            self.survived = True

    def announced(self, epoch: BrokerEpoch, told: Announcement) -> None:
        """Take what the controller says, unless it is for another life or older than what is known."""
        if epoch != self._epoch:
            return
        self._network.send(
            self.number, self._controller, self._controller.heard, self.id, epoch, told.version
        )
        if told.version <= self._version:
            return
        self._version = told.version
        self._live.clear()
        self._live.update(told.live)
        self._take(told.partition)

    def _take(self, state: PartitionImage) -> None:
        before, self.state = self.state, state
        if before is not None and before.leader_epoch == state.leader_epoch:
            if isinstance(self.role, Leadership):
                self._moved(self.role.assigned(state, self._world.now))
                self._moved(self.role.tick(self._world.now))
                self._send_wish()
            return
        self._waiting.clear()
        self._asked = None
        if state.leader == self.id:
            self._lead(state)
        elif state.leader == NO_BROKER:
            self.role = None
        else:
            self._follow(state)

    def _lead(self, state: PartitionImage) -> None:
        self.log.epochs.assign(state.leader_epoch, self.log.end)
        self._world.note("lead", self.number, state.leader_epoch, self.log.end, self.high_watermark)
        self.role = Leadership(
            self.id,
            state,
            epoch_start=self.log.end,
            high_watermark=self.high_watermark,
            live=self._live,
            min_insync=self._settings.min_insync_replicas,
            lag_ms=LAG_MS,
            now=self._world.now,
        )
        self._grown()

    def _follow(self, state: PartitionImage) -> None:
        self.role = Following(
            self.log, state.leader_epoch, self.high_watermark, stored=self._counted(), backoff_ms=BACKOFF_MS
        )
        self._carry_out(self.role, self.role.begin())

    # The log

    def _counted(self) -> Offset:
        """How far the log counts: to its end, or where the disk is asked for to what is flushed."""
        log = self.log
        return log.recovery_point if log.unflushed >= self._settings.flush_messages else log.end

    def _grown(self) -> None:
        """The log has more, or more of it is flushed."""
        role = self.role
        if role is None:
            return
        counted = self._counted()
        self._moved(role.appended(counted) if isinstance(role, Leadership) else role.stored(counted))
        if counted < self.log.end:
            self._flush()

    def _moved(self, moved: bool) -> None:
        """Let readers see what is committed, and answer the producers that waited for it."""
        role = self.role
        if role is None:
            return
        before, self.high_watermark = self.high_watermark, role.high_watermark
        if moved and self.high_watermark < before:
            raise AssertionError("the watermark fell")
        if self.high_watermark > self._shown:
            self._judge.saw(self.number, self.stored(self._shown, self.high_watermark), self.high_watermark)
            self._shown = self.high_watermark
        if isinstance(role, Leadership) and self._waiting:
            self._answer_producers(role)

    def stored(self, offset: Offset, below: Offset) -> bytes:
        """Batches from an offset on, below another."""
        found = bytearray()
        offset = max(offset, self.log.start)
        while offset < below and (part := self.log.read(offset, 1 << 20, below)) is not None:
            data = part.read()
            found += data
            *_, (_, last) = headers(data)
            offset = last.next_offset
        return bytes(found)

    def _answer_producers(self, role: Leadership) -> None:
        left = []
        for waiting in self._waiting:
            outcome = role.outcome(waiting.upto)
            if outcome is Code.NONE:
                self._judge.acknowledge(waiting.value, waiting.first)
            elif outcome is None:
                left.append(waiting)
        self._waiting = left

    def _flush(self) -> None:
        if not self._is_flushing:
            flush = self.log.begin_flush()
            if flush is not None:
                self._is_flushing = True
                self._world.after(self._world.between(0, 6), self._run_flush, self.life, self.log, flush)

    def _run_flush(self, life: int, log: Log, flush: Flush) -> None:
        """A flush runs beside the loop: also while the broker is paused, not after it died."""
        if life != self.life or not self.is_up:
            return
        self._guarded(self._sync, log, flush)

    def _sync(self, log: Log, flush: Flush) -> None:
        try:
            flush.run()
        except OSError as error:
            raise log.fail_flush(error) from error
        self.deliver(self._flushed, (flush,))

    def _flushed(self, flush: Flush) -> None:
        self._is_flushing = False
        self.log.finish_flush(flush)
        self._grown()

    def _checkpoint(self) -> None:
        self._write_down(WATERMARK, self.high_watermark)
        if self._world.chance(0.3):
            self._flush()
        self._write_down(RECOVERY_POINT, self.log.recovery_point)
        self._later(CHECKPOINT_MS, self._checkpoint)

    # Producing

    def produce(self, batch: memoryview, value: bytes, acks: int) -> None:
        role = self.role
        if not isinstance(role, Leadership) or (acks < 0 and not role.is_enough_for_all):
            return
        appended = self.log.append(batch, epoch=role.epoch, now=self._world.now)
        if acks < 0:
            self._waiting.append(Waiting(value, appended.first, Offset(appended.last + 1)))
        self._grown()

    # Being fetched from

    def fetch(self, replica: BrokerId, broker_epoch: BrokerEpoch, position: FetchPosition) -> None:
        answer = self._serve(replica, broker_epoch, position)
        node = self.peers[replica]
        self._network.send(self.number, node, node.answered, position, answer)
        if isinstance(self.role, Leadership):
            self._moved(True)
        self._send_wish()

    def _serve(self, replica: BrokerId, broker_epoch: BrokerEpoch, position: FetchPosition) -> FetchAnswer:
        role, log = self.role, self.log
        if not isinstance(role, Leadership):
            return FetchAnswer(Code.NOT_LEADER_OR_FOLLOWER)
        try:
            parted = self.divergence(role, position)
            if parted is not None:
                return FetchAnswer(Code.NONE, role.high_watermark, log.start, parted)
            part = log.read(position.offset, MOST_BYTES, log.end)
            role.fetched(
                replica, broker_epoch, position.epoch, position.offset, position.log_start, self._world.now
            )
        except Refused as refused:
            if refused.code is Code.KAFKA_STORAGE_ERROR:
                raise
            return FetchAnswer(refused.code, role.high_watermark, log.start)
        return FetchAnswer(
            Code.NONE, role.high_watermark, log.start, records=part.read() if part is not None else b""
        )

    def divergence(self, role: Leadership, position: FetchPosition) -> Divergence | None:
        """Where a follower must look for its cut; of no use to one of another epoch, which is refused anyway."""
        if position.epoch != role.epoch:
            return None
        return divergence(self.log, position.last_epoch, position.offset)

    # Fetching

    def _poll(self) -> None:
        self._fetch_next()
        self._later(POLL_MS, self._poll)

    def _fetch_next(self) -> None:
        role, state, now = self.role, self.state, self._world.now
        if not isinstance(role, Following) or state is None:
            return
        position = role.next_fetch(now)
        if position is None or (
            self._asked and self._asked[0] == position and now < self._asked[1] + ANSWER_MS
        ):
            return
        self._asked = position, now
        leader = self.peers[state.leader]
        self._network.send(self.number, leader, leader.fetch, self.id, self._epoch, position)

    def answered(self, position: FetchPosition, answer: FetchAnswer) -> None:
        """An answer came, to whatever was asked whenever."""
        role = self.role
        if not isinstance(role, Following):
            return
        if self._asked is not None and self._asked[0] == position:
            self._asked = None
        effects = role.answered(position, answer, self._world.now)
        self._carry_out(role, effects)
        if effects:
            self._fetch_next()

    def _carry_out(self, role: Following, effects: list[Effect]) -> None:
        try:
            for effect in effects:
                self._do(effect)
        except Refused as refused:
            if refused.code is Code.KAFKA_STORAGE_ERROR:
                raise
            role.failed(self._world.now)
        self._grown()

    def _do(self, effect: Effect) -> None:
        log = self.log
        match effect:
            case Append(records, epoch):
                log.append_replicated(memoryview(bytearray(records)), now=self._world.now, epoch=epoch)
            case Truncate(to):
                self._world.note("truncate", self.number, log.end, to)
                self.before_cut(to)
                log.truncate_to(to)
                self._shown = min(self._shown, log.end)
            case StartOver(at):
                self.before_cut(Offset(0))
                log.start_over_at(at)
            case AdvanceStart(to):
                log.advance_start(min(to, log.end))

    def before_cut(self, to: Offset) -> None:
        """A log that is opened again never ends below its recovery point: it must not lie above the cut."""
        self._write_down(RECOVERY_POINT, min(self.log.recovery_point, to))

    # The in-sync set

    def _send_wish(self) -> None:
        if not isinstance(self.role, Leadership):
            return
        wish = self.role.take_wish()
        if wish is not None:
            self._alter(wish)

    def _alter(self, wish: IsrWish) -> None:
        controller = self._controller
        self._network.send(self.number, controller, controller.alter, self.id, self._epoch, wish)
        life = self.life
        self._world.after(ANSWER_MS, self._unanswered, life, wish)

    def _unanswered(self, life: int, wish: IsrWish) -> None:
        if life == self.life:
            self.deliver(self.altered, (wish, Code.NETWORK_EXCEPTION, (), NO_OFFSET))

    def altered(
        self, wish: IsrWish, code: Code, isr: tuple[BrokerId, ...], partition_epoch: PartitionEpoch
    ) -> None:
        if isinstance(self.role, Leadership):
            self._moved(self.role.answered(wish, code, self._world.now, isr, partition_epoch))
            self._later(HEARTBEAT_MS // 2, self._send_wish)

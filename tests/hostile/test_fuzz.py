"""Sends 100,000 mutated requests: the broker answers or hangs up, serves others, and writes nothing broken."""

import random
import struct

import pytest

from barnabas.wire.batch import decode_batch
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from tests import segments
from tests.hostile import corpus
from tests.hostile.neighbour import Neighbour
from tests.process import BrokerProcess
from tests.raw import Gone, RawConnection, frame_of

FRAMES = 95_000
BROKEN_LENGTHS = 5_000
AT_ONCE = 50
SEED = 1914
MAY_GROW_MIB = 150
PARKED_S = 0.5  # a fetch mutated into one that waits keeps its connection; the fuzzer takes another

_EDGES = [0, 1, -1, 2, 127, -128, 0x7FFF, -0x8000, 0x7FFFFFFF, -0x80000000]
_LAST = 0x5EED_1A57


def mutated(frames: list[bytes], chance: random.Random) -> bytes:
    """A frame with one to three things wrong: bytes, numbers at the edge, cuts, doubled or foreign parts."""
    frame = bytearray(chance.choice(frames))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(frame)) if frame else 0
        kind = chance.randrange(8)
        if kind < 3 and frame:
            frame[at] = chance.randrange(256)
        elif kind == 3 and len(frame) >= 4:
            struct.pack_into(">i", frame, min(at, len(frame) - 4), chance.choice(_EDGES))
        elif kind == 4:
            del frame[at:]
        elif kind == 5:
            frame[at:at] = chance.randbytes(chance.randrange(1, 20))
        elif kind == 6:
            other = chance.choice(frames)
            frame[at:] = other[chance.randrange(len(other)) :]
        elif kind == 7:
            frame[at : at + 1] = b"\xff\xff\xff\xff\x0f"  # the longest varint
    return bytes(frame)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _answered(connection: RawConnection, bodies: list[bytes]) -> int:
    """Sends requests at once; gives how many the broker has dealt with when it answers the last or hangs up."""
    last = frame_of(ApiVersionsRequest("fuzz", "1"), 3, _LAST)
    done = 0
    try:
        connection.send(b"".join(map(framed, bodies)) + last)
        while struct.unpack_from(">i", connection.receive())[0] != _LAST:
            done += 1
    except Gone:
        connection.close()
        return done + 1
    except TimeoutError:
        connection.close()
        return done + 1
    return len(bodies)


@pytest.mark.slow
def test_a_hundred_thousand_mutated_frames_cost_only_their_sender(victim: BrokerProcess) -> None:
    chance = random.Random(SEED)
    frames = corpus.frames()
    before = victim.rss_mib()
    sent = 0
    with Neighbour(victim.port) as neighbour:
        connection = RawConnection(victim.port, PARKED_S)
        waiting = [mutated(frames, chance) for _ in range(AT_ONCE)]
        while sent < FRAMES:
            if connection.socket.fileno() < 0:
                connection = RawConnection(victim.port, PARKED_S)
            done = min(_answered(connection, waiting), len(waiting))
            sent += done
            waiting = waiting[done:] + [mutated(frames, chance) for _ in range(done)]
        connection.close()
        for _ in range(BROKEN_LENGTHS):
            body = mutated(frames, chance)
            wrong = max(-(2**31), min(2**31 - 1, len(body) + chance.choice(_EDGES)))
            with RawConnection(victim.port) as connection:
                connection.send(struct.pack(">i", wrong) + body)
    assert victim.running, victim.said()
    assert neighbour.slowest_s < 5
    assert victim.rss_mib() < before + MAY_GROW_MIB
    _everything_written_is_sound(victim)


def _everything_written_is_sound(victim: BrokerProcess) -> None:
    """Some mutants are sound requests; what they wrote must be whole, checksummed and readable."""
    for folder in segments.partitions(victim.data):
        for header, data in segments.batches(folder, growing=True):
            assert len(decode_batch(data)) == header.count

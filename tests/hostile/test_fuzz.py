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
from tests.raw import ANSWER_S, Gone, RawConnection, frame_of

FRAMES = 95_000
BROKEN_LENGTHS = 5_000
SEED = 1914
MAY_GROW_MIB = 150
PARKED_S = 0.5  # a fetch mutated into one that waits keeps its connection; the fuzzer takes another

_HEADER = 14  # key, version, correlation id and the client's name
_EDGES = {
    ">b": [0, 1, -1, 127, -128],
    ">h": [0, 1, -1, 0x7FFF, -0x8000],
    ">i": [0, 1, -1, 2, 255, 1 << 20, 0x7FFFFFFF, -0x80000000],
    ">q": [0, 1, -1, -2, -3, -4, -5, 1 << 40, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000],
}
_LAST = 0x5EED_1A57
_FETCH = b"\0\1"


def mutated(frames: list[bytes], chance: random.Random) -> bytes:
    """A frame with one to three things wrong: bits, numbers at the edge, cuts, doubled or foreign parts.

    Most of it behind the header, and most of it small: what is plainly broken is found out early.
    """
    frame = bytearray(chance.choice(frames))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        first = 0 if chance.random() < 0.1 else min(_HEADER, len(frame) - 1)
        at = chance.randrange(first, len(frame))
        kind = chance.randrange(20)
        if kind < 7:
            frame[at] ^= 1 << chance.randrange(8)
        elif kind < 12:
            frame[at] = chance.randrange(256)
        elif kind < 16:
            width = chance.choice((">b", ">h", ">i", ">q"))
            at = max(0, min(at, len(frame) - struct.calcsize(width)))
            frame[at : at + struct.calcsize(width)] = struct.pack(width, chance.choice(_EDGES[width]))
        elif kind == 16:
            del frame[max(1, at) :]
        elif kind == 17:
            frame[at:at] = chance.randbytes(chance.randrange(1, 20))
        elif kind == 18:
            other = chance.choice(frames)
            frame[at:] = other[chance.randrange(len(other)) :]
        else:
            frame[at : at + 1] = b"\xff\xff\xff\xff\x0f"  # the longest varint
    return bytes(frame)


def _survives(connection: RawConnection, body: bytes) -> bool:
    """Sends a request with a sound one behind it; whether that one is answered, or the connection is lost."""
    sound = frame_of(ApiVersionsRequest("fuzz", "1"), 3, _LAST)
    connection.socket.settimeout(PARKED_S if body[:2] == _FETCH else ANSWER_S)
    try:
        connection.send(struct.pack(">i", len(body)) + body + sound)
        while struct.unpack_from(">i", connection.receive())[0] != _LAST:
            pass
    except Gone:
        connection.close()
        return False
    except TimeoutError:
        connection.close()
        assert body[:2] == _FETCH, f"only a fetch may wait, and this was left without an answer: {body.hex()}"
        return False
    return True


@pytest.mark.slow(seconds=50)
@pytest.mark.timeout(900)
def test_a_hundred_thousand_mutated_frames_cost_only_their_sender(victim: BrokerProcess) -> None:
    chance = random.Random(SEED)
    frames = corpus.frames()
    before = victim.rss_mib()
    survived = 0
    with Neighbour(victim) as neighbour:
        connection = RawConnection(victim.port)
        for _ in range(FRAMES):
            if _survives(connection, mutated(frames, chance)):
                survived += 1
            else:
                connection = RawConnection(victim.port)
        connection.close()
        for _ in range(BROKEN_LENGTHS):
            body = mutated(frames, chance)
            wrong = max(-(2**31), min(2**31 - 1, len(body) + chance.choice(_EDGES[">i"])))
            with RawConnection(victim.port) as connection:
                connection.send(struct.pack(">i", wrong) + body)
    assert survived > FRAMES // 10, "mutants that are all found out at once test little"
    assert victim.running, victim.said()
    said = "".join(victim.output)
    assert "ERROR" not in said, said[said.find("ERROR") :][:4000]
    assert "Traceback" not in said
    assert neighbour.longest_s < 5
    assert victim.rss_mib() < before + MAY_GROW_MIB
    _everything_written_is_sound(victim)


def _everything_written_is_sound(victim: BrokerProcess) -> None:
    """Some mutants are sound requests; what they wrote must be whole, checksummed and readable."""
    for folder in segments.partitions(victim.data):
        for header, data in segments.batches(folder, growing=True):
            assert len(decode_batch(data)) == header.count

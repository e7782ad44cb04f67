"""Tries a cluster for hours and writes a report: `make soak-cluster` (ARGS="--hours 8 --seed 7").

A seed chooses the faults, how long each lasts and which partition's leader or follower it strikes. Every few rounds the
history is judged, the replicas are compared and a new topic begins. The report is whole at any moment, so that a run
can be stopped at any time; the first broken promise ends it, and leaves data and logs where the report says.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.testing import Cluster, faults
from barnabas.testing.faults import Fault
from barnabas.testing.full_disks import FullDisks
from barnabas.testing.wall_clocks import WallClocks
from tests.chaos.rounds import PARTITIONS, SETTINGS, Held, Round, Trial

ROUNDS_A_TOPIC = 20
SHORT_S, LONG_S, LONGEST_S = 0.2, 5.0, 20.0


class Report:
    """A file of Markdown: what was tried, what it cost, what was found."""

    def __init__(self, path: Path, seed: int, data: Path) -> None:
        self._path = path
        self._head = [
            f"# Soak of a cluster, seed {seed}",
            "",
            f"Begun {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC. Data and logs: `{data}`.",
            "Three brokers, replication 3, min.insync.replicas 2, writers and readers of librdkafka and of ours.",
            "",
        ]
        self._rounds: list[Round] = []
        self._verdicts: list[str] = []
        self._end = "It is still running."
        self._began = time.monotonic()

    def add_round(self, done: Round) -> None:
        self._rounds.append(done)
        self._write()

    def add_verdict(self, topic: str, verdict: object) -> None:
        self._verdicts += ["```text", f"{topic}: {verdict}", "```"]
        self._write()

    def end(self, how: str) -> None:
        self._end = how
        self._write()

    def _write(self) -> None:
        hours = (time.monotonic() - self._began) / 3600
        lines = [*self._head, f"**{self._end}** {len(self._rounds)} rounds in {hours:.2f} hours.", ""]
        lines += [
            "| fault | rounds | longest silence | writes again | in sync again |",
            "|---|---|---|---|---|",
        ]
        for name in sorted({done.fault for done in self._rounds}):
            of = [done for done in self._rounds if done.fault == name]
            worst = [max(done[at] for done in of) for at in (1, 2, 3)]
            lines.append(f"| {name} | {len(of)} | " + " | ".join(f"{each:.2f} s" for each in worst) + " |")
        lines += [
            "",
            "The worst of all rounds of a fault is shown.",
            "",
            "## Histories",
            "",
            *self._verdicts,
            "",
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("\n".join(lines))


def draw(chance: random.Random, topic: str, clocks: WallClocks, disks: FullDisks) -> tuple[Fault, Held]:
    """A fault that strikes some partition's leader or follower, and how long it lasts."""
    partition = chance.randrange(PARTITIONS)
    leader, follower = faults.leader(topic, partition), faults.follower(topic, partition)
    target = chance.choice([leader, follower, faults.controller()])
    pauses: list[Callable[[], Fault]] = [
        lambda: faults.pause(target),
        lambda: faults.pause(faults.all_brokers()),
    ]
    makers: list[Callable[[], Fault]] = [
        lambda: faults.kill(target),
        lambda: faults.kill(target),
        lambda: faults.kill(faults.all_brokers()),
        lambda: faults.stop(target),
        *pauses,
        faults.kill_zookeeper,
        faults.kill_zookeepers_leader,
        lambda: faults.cut_off(target),
        lambda: faults.cut_off(target, store=True),
        lambda: faults.deafen(target),
        lambda: faults.mute(target),
        lambda: faults.cut_store(target),
        lambda: faults.part(topic, partition),
        lambda: faults.look_dead(target),
        lambda: faults.slow_down(target),
        lambda: faults.fill_disk(target, disks),
        lambda: faults.wipe(chance.choice([leader, follower])),
        lambda: faults.jump_clock(target, clocks, chance.choice([-1_800, -60, 60, 86_400])),
        faults.rolling_restart,
    ]
    maker = chance.choice(makers)
    # A broker that stands still is tried with less than a session and with more than any.
    lengths = [SHORT_S, LONGEST_S] if maker in pauses else [SHORT_S, SHORT_S, LONG_S, LONG_S, LONGEST_S]
    return maker(), Held(chance.choice(lengths), writes_within_s=60.0)


def soak(hours: float, seed: int, report: Report, data: Path) -> bool:
    """Whether nothing was found."""
    chance = random.Random(seed)
    ends = time.monotonic() + hours * 3600
    number = 0
    with (
        WallClocks() as clocks,
        FullDisks() as disks,
        Cluster(3, SETTINGS, data=data, links=True, zookeepers=3) as cluster,
    ):
        while time.monotonic() < ends:
            number += 1
            topic = f"soak-{number}"
            with Trial(cluster, topic) as trial:
                for _ in range(ROUNDS_A_TOPIC):
                    fault, held = draw(chance, topic, clocks, disks)
                    _say(f"{topic}: {fault.name} for {held.seconds:g} s")
                    report.add_round(trial.strike(fault, held))
                    if time.monotonic() > ends:
                        break
                verdict = trial.finish()
            report.add_verdict(topic, verdict)
            _say(str(verdict))
            if verdict.findings:
                return False
    return True


def _say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--report", type=Path, default=Path("build/soak-cluster.md"))
    parser.add_argument("--data", type=Path, help="a new folder for data and logs, which are left there")
    chosen = parser.parse_args()
    data = chosen.data or Path(tempfile.mkdtemp(prefix="barnabas-soak-"))
    report = Report(chosen.report, chosen.seed, data)
    _say(f"seed {chosen.seed}, {chosen.hours:g} hours; report: {chosen.report}; data: {data}")
    try:
        is_clean = soak(chosen.hours, chosen.seed, report, data)
    except BaseException as error:
        report.end(f"It ended with {error!r}.")
        raise
    report.end("Nothing was found." if is_clean else "A promise was broken: see the last history.")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())

"""What may go wrong in a simulated world, and how often. One seed gives one story."""

from __future__ import annotations

import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Faults:
    drop: float = 0.0  # of messages
    duplicate: float = 0.0
    longest_delay_s: float = 0.05  # different delays reorder
    worker_crashes: int = 0
    worker_pauses: int = 0
    master_crashes: int = 0
    master_pauses: int = 0
    absences: int = 0  # of all masters, until everything that was granted is over
    leader_changes: int = 0  # the lock moves while the old leader lives and knows nothing
    partitions: int = 0
    stalls: int = 0  # a link delivers nothing for a while, then all of it at once, in order
    store_fails: float = 0.0  # of commands: nothing applied
    store_unknown: float = 0.0  # of commands: applied or not, nobody knows
    killers: bool = False  # pages that kill the worker that fetches them
    poison: bool = False  # results that cannot be stored
    spoil: float = 0.0  # of results: an unreadable body with a valid header
    pauses_by_operator: int = 0  # a run is paused, and resumed a little later
    max_pages: int | None = None
    deaf_workers: int = 0  # a master's messages to one worker are lost for a while, BEATs are not
    deaf_for_ever: int = 0  # workers that never hear anything but BEATs
    bogus_epochs: int = 0  # a worker sends a message with an epoch that never existed
    output_pauses: float = 0.0  # of the effects of outputs: the master is paused before it
    disk_full: float = 0.0  # of writes to outputs
    lost_attempts: int = 0  # a worker forgets a fetch, but still reports it as running
    drains: int = 0  # a worker is drained, and undrained a little later
    moves: int = 0  # a host is given to another worker
    retries: int = 0  # dead requests of a run are tried again
    until_s: float = 40.0  # faults end here, so that the crawl must complete


CALM = Faults()
LEADER_CHANGES_ONLY = Faults(leader_changes=4, longest_delay_s=0.02)
MASTERS_AWAY = Faults(absences=1, longest_delay_s=0.02, until_s=10.0)
DEAF_WORKERS = Faults(deaf_workers=3, deaf_for_ever=1, longest_delay_s=0.02)
LOST_ATTEMPTS_ONLY = Faults(lost_attempts=4, longest_delay_s=0.02)
STALLED_LINKS = Faults(stalls=4, longest_delay_s=0.02)
BOGUS_EPOCHS_ONLY = Faults(bogus_epochs=6, longest_delay_s=0.02)
OUTPUT_PAUSES = Faults(output_pauses=0.03, disk_full=0.05, longest_delay_s=0.02)


def draw(rng: random.Random) -> Faults:
    """A mixture: some worlds have one kind of fault, some have all."""

    def some(most: int) -> int:
        return rng.randint(0, most) if rng.random() < 0.6 else 0

    return Faults(
        drop=rng.choice([0.0, 0.0, 0.02, 0.1, 0.3]),
        duplicate=rng.choice([0.0, 0.05, 0.3]),
        longest_delay_s=rng.choice([0.01, 0.05, 0.5, 2.0]),
        worker_crashes=some(4),
        worker_pauses=some(2),
        master_crashes=some(2),
        master_pauses=some(2),
        leader_changes=some(3),
        partitions=some(3),
        store_fails=rng.choice([0.0, 0.0, 0.05, 0.2]),
        store_unknown=rng.choice([0.0, 0.0, 0.05, 0.2]),
        killers=rng.random() < 0.2,
        poison=rng.random() < 0.3,
        spoil=rng.choice([0.0, 0.0, 0.0, 0.05]),
        pauses_by_operator=rng.choice([0, 0, 0, 2]),
        max_pages=rng.choice([None, None, None, None, 7]),
        deaf_workers=some(2),
        deaf_for_ever=rng.choice([0, 0, 0, 1]),
        bogus_epochs=some(2),
        output_pauses=rng.choice([0.0, 0.0, 0.01, 0.05]),
        disk_full=rng.choice([0.0, 0.0, 0.1]),
        lost_attempts=some(2),
        drains=rng.choice([0, 0, 2]),
        moves=rng.choice([0, 0, 2]),
        retries=rng.choice([0, 0, 2]),
        stalls=some(2),
    )

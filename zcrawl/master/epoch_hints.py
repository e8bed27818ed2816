"""A higher epoch in a message: has somebody else taken over, or is that only said?

Called by the leader. A master that says so is believed: it holds the masters' key. Everybody else
(workers, clients) gives a hint, and the database decides: it is asked at most once a second, and
only a higher stored epoch ends leadership. So a worker's key cannot depose a leader. Waiting for
the answer is harmless: whoever was replaced is stopped by the store (G4). Pure.
"""

from __future__ import annotations

from zcrawl.errors import StoreError
from zcrawl.master.events import Ask, Effects, Note, StepDown
from zcrawl.mesh.messages import Header
from zcrawl.store.queries import ReadEpoch, StoredEpoch

CHECK_AGAIN_S = 1.0


class EpochHints:
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._check_at = float("-inf")  # not before
        self._checking = False

    def heard(self, header: Header, by_master: bool, now: float, effects: Effects) -> None:
        """A message with a higher epoch. Its sender repeats it if it is true."""
        if by_master:
            effects.append(StepDown(f"{header.source} leads in epoch {header.epoch}"))
        elif not self._checking and now >= self._check_at:
            self._checking, self._check_at = True, now + CHECK_AGAIN_S
            text = f"{header.source} speaks of epoch {header.epoch}, this is {self._epoch}"
            effects.append(Note("higher_epoch_heard", f"{text}: asking the database"))
            effects.append(Ask(ReadEpoch(), f"epoch {self._epoch}"))

    def answered(self, answer: StoredEpoch, effects: Effects) -> None:
        self._checking = False
        if answer.epoch > self._epoch:
            effects.append(StepDown(f"the database holds epoch {answer.epoch}"))

    def failed(self, error: StoreError, effects: Effects) -> None:
        """The next hint asks again."""
        self._checking = False
        effects.append(Note("epoch_check_failed", f"{error.code}: {error}"))

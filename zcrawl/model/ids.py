"""Numbers and names by which things are called. Types only."""

from __future__ import annotations

from typing import NewType

WorkerId = NewType("WorkerId", str)
MasterId = NewType("MasterId", str)
Incarnation = NewType("Incarnation", int)  # random per process start
Seq = NewType("Seq", int)  # a request's number, given by the leader, never used twice
RunId = NewType("RunId", int)
JobId = NewType("JobId", int)
HostId = NewType("HostId", int)

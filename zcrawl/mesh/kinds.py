"""The kinds of messages, as the header names them. Numbers are never used twice."""

from __future__ import annotations

import enum


class Kind(enum.IntEnum):
    """The type field of the header."""

    HELLO = 1
    HEARTBEAT = 2
    ACCEPT = 3
    REJECT = 4
    RESULT = 5
    BYE = 6
    LINES = 7
    WELCOME = 16
    ASSIGN = 17
    ACK = 18
    CANCEL = 19
    REHELLO = 20
    STALE = 21
    NOT_LEADER = 22
    DRAIN = 23
    CONFIG = 24
    CODE = 25
    BEAT = 32
    EVENT = 33
    SNAPSHOT = 34
    VITALS = 35
    REQUEST = 48
    REPLY = 49

"""The watch over an HTTP/2 connection sees at once what cannot be frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zcrawl.fetch.http2.backend import FRAMES_A_REQUEST, MAX_FRAME_BYTES, FrameWatch

SETTINGS = bytes(3) + b"\x04\x00" + bytes(4)


def frame(length: int, kind: int = 0) -> bytes:
    return length.to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + bytes(length)


def fed(data: bytes, piece: int) -> str:
    watch = FrameWatch()
    complaints = (watch.feed(data[at : at + piece]) for at in range(0, len(data), piece))
    return next(filter(None, complaints), "")


@given(st.lists(st.integers(0, 300), max_size=20), st.integers(1, 400))
def test_frames_are_followed_in_whatever_pieces_they_come(lengths: list[int], piece: int) -> None:
    """Nothing is wrong with them, and what follows them is still looked at."""
    data = SETTINGS + b"".join(map(frame, lengths))
    assert fed(data, piece) == ""
    assert "4740180 bytes" in fed(data + b"HTTP/1.1 200 OK", piece)  # "HTT" as a length


@given(st.integers(1, 20_000))
def test_the_longest_frame_is_allowed(piece: int) -> None:
    """One byte more is refused, before its payload arrives."""
    assert fed(SETTINGS + frame(MAX_FRAME_BYTES), piece) == ""
    head = frame(MAX_FRAME_BYTES + 1)[:9]
    assert f"{MAX_FRAME_BYTES + 1} bytes" in fed(SETTINGS + head, piece)


def test_a_connection_begins_with_settings() -> None:
    """RFC 9113, 3.4: a connection that begins with another frame is not HTTP/2."""
    assert "not SETTINGS" in fed(frame(5, kind=0), 1)
    assert fed(SETTINGS[:8], 1) == ""  # not whole yet


PING, HEADERS, WINDOW_UPDATE, UNKNOWN = 6, 1, 8, 99


@pytest.mark.parametrize(
    ("length", "kind"),
    [(8, PING), (0, 4), (4, HEADERS), (4, WINDOW_UPDATE), (5, 2), (0, UNKNOWN), (0, 0), (1, 0)],
)
def test_a_flood_of_frames_without_content_ends_the_connection(length: int, kind: int) -> None:
    """h2 takes any number of them, and each costs the event loop 10 to 40 us."""
    few = SETTINGS + frame(length, kind) * (FRAMES_A_REQUEST - 1)
    assert fed(few, 10_000) == ""
    assert "without content" in fed(few + frame(length, kind) * FRAMES_A_REQUEST, 10_000)


def test_small_pieces_of_a_body_are_content() -> None:
    """A server may send each line of a page by itself."""
    assert fed(SETTINGS + frame(10) * 50_000, 10_000) == ""


def test_each_request_of_a_connection_allows_more_frames() -> None:
    """So a connection that serves thousands of pages is not ended for the pings of a day."""
    watch = FrameWatch()
    assert watch.feed(SETTINGS) == ""
    for _ in range(50):
        watch.allow_request()
        assert watch.feed(frame(8, PING) * FRAMES_A_REQUEST) == ""

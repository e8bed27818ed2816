"""A replay can be paused, sought and made faster, and always knows where it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.feed.playhead import LONGEST_SILENCE_S, SPEEDS, Playhead


def test_long_silences_are_shortened() -> None:
    """A recording may have slept for hours."""
    head = Playhead([0.0, 1.0, 9_000.0], now=50.0)
    assert head.length_s == 1.0 + LONGEST_SILENCE_S
    assert (head.due(50.0), head.due(51.0), head.due(55.9), head.due(56.0)) == (1, 2, 2, 3)


def test_it_says_how_long_to_wait() -> None:
    """At its speed; None where nothing comes by itself."""
    head = Playhead([0.0, 4.0], now=0.0)
    assert head.wait_s(1.0) == pytest.approx(3.0)
    head.change_speed(1, 1.0)
    assert head.wait_s(1.0) == pytest.approx(1.5)
    head.toggle_pause(1.0)
    assert head.wait_s(1.0) is None
    head.toggle_pause(9.0)
    assert head.position(9.0) == pytest.approx(1.0)
    assert head.wait_s(99.0) is None and head.position(99.0) == 4.0


def test_the_key_for_pause_begins_again_at_the_end() -> None:
    """Nothing else could be meant."""
    head = Playhead([0.0, 1.0], now=0.0)
    head.toggle_pause(5.0)
    assert head.position(5.0) == 0.0 and not head.state(5.0).paused


def test_an_empty_recording_stands_still() -> None:
    """Its maker saw nothing."""
    head = Playhead([], now=0.0)
    assert head.due(9.0) == 0 and head.wait_s(9.0) is None and head.length_s == 0.0


steps = st.one_of(
    st.tuples(st.just("seek"), st.floats(-100, 100)),
    st.tuples(st.just("speed"), st.integers(-9, 9)),
    st.tuples(st.just("pause"), st.just(0)),
    st.tuples(st.just("wait"), st.floats(0, 30)),
)


@given(st.lists(st.floats(0, 20), min_size=1, max_size=30), st.lists(steps, max_size=30))
def test_the_position_never_leaves_the_recording(
    gaps: list[float], pressed: list[tuple[str, float]]
) -> None:
    """Whatever is pressed; only a seek or a new beginning goes back."""
    now, moments, at = 100.0, [], 0.0
    for gap in gaps:
        at += gap
        moments.append(at)
    head = Playhead(moments, now)
    for name, value in pressed:
        before = head.position(now)
        if name == "seek":
            head.seek(head.position(now) + value, now)
        elif name == "speed":
            head.change_speed(int(value), now)
            assert head.position(now) == pytest.approx(before)
        elif name == "pause":
            head.toggle_pause(now)
        else:
            now += value
            assert head.position(now) >= before - 1e-9
        state = head.state(now)
        assert 0.0 <= state.position_s <= head.length_s and state.speed in SPEEDS
        assert 0 <= head.due(now) <= len(moments)

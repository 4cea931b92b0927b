"""Flame graphs are well-formed, and a frame is as wide as its share of the samples."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from bench import flame, profiling

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "main;read <rows>;decode 30\nmain;read <rows> 10\nmain;write 60\nno number\n"


def test_a_frame_is_as_wide_as_its_share() -> None:
    root = ET.fromstring(flame.svg("driver & co", flame.parsed(TEXT)))  # noqa: S314
    wide = {}
    for group in root.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert title.text is not None
        assert rect is not None
        wide[title.text] = float(rect.attrib["width"])
    assert wide == {
        "all (100, 100.0%)": 1200.0,
        "main (100, 100.0%)": 1200.0,
        "read <rows> (40, 40.0%)": 480.0,
        "decode (30, 30.0%)": 360.0,
        "write (60, 60.0%)": 720.0,
    }


def test_the_hottest_functions_are_the_innermost() -> None:
    assert flame.hottest(flame.parsed(TEXT), 2) == [("write", 0.6), ("decode", 0.3)]


def test_stacks_survive_being_written() -> None:
    stacks = flame.parsed(TEXT)
    assert flame.parsed(flame.folded(stacks)) == stacks


def test_no_samples_make_an_empty_picture() -> None:
    assert "0 samples" in flame.svg("capture", {})


def test_a_flight_recording_is_folded_from_the_outermost_frame() -> None:
    def frame(kind: str, name: str) -> dict[str, object]:
        return {"method": {"type": {"name": kind}, "name": name}}

    trace = {"frames": [frame("org/x/Inner", "work"), frame("java/lang/Thread", "run")]}
    events = [{"values": {"stackTrace": trace}}, {"values": {"stackTrace": None}}]
    assert profiling.collapse({"recording": {"events": events}}) == {
        "java.lang.Thread.run;org.x.Inner.work": 1
    }


def test_workers_are_drawn_as_one() -> None:
    text = 'process 1:"python";read 2\nprocess 1:"python";process 2:"python";read 3\nprocess 1:"python" 1\n'
    assert profiling.merged(flame.parsed(text)) == {"read": 5}


def test_a_pipeline_that_ends_at_once_is_told() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        with pytest.raises(profiling.Unavailable, match="ended before"):
            profiling._captures(process.pid)
        process.wait()


def test_the_driver_is_known_by_its_process() -> None:
    assert profiling.processes(os.getpid())["driver"] == os.getpid()

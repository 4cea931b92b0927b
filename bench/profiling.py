"""`make profile`: flame graphs of a running pipeline's driver, capture, workers and JVM.

Without a pipeline it is the demonstration's, with its traffic, in a temporary directory. Python processes are
sampled from outside by py-spy, which must be allowed to trace them; the JVM records itself (JDK Flight
Recorder), where `jcmd` and `jfr` are there. Only time on a processor is shown, not waiting.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from bench import flame

SECONDS, RATE = 30, 100
OUT = Path("profile")
# How long a pipeline may need until its capture runs, and after it has been told to end.
PATIENCE = 120.0
# Where workers are on other machines, none comes.
WORKERS_PATIENCE = 20.0
CAPTURE, DAEMON = "python_streaming_source_runner", "tailrace.spark.daemon"


class Unavailable(Exception):
    """It cannot be profiled here; why, and what helps."""


def processes(root: int) -> dict[str, int]:
    """The processes of a pipeline by what they do, as far as they are there."""
    found = {"driver": root}
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(root).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if process.name() == "java":
                    found.setdefault("jvm", process.pid)
                elif any(CAPTURE in word for word in words):
                    found.setdefault("capture", process.pid)
                # Workers are forked from it, have its command line, and come after it.
                elif DAEMON in words:
                    found.setdefault("workers", process.pid)
    return found


def spy(pid: int, output: Path, seconds: int, *, below: bool) -> subprocess.Popen[bytes]:
    """Begin to sample a Python process, with `below` also those it forks."""
    program = Path(sys.executable).with_name("py-spy")
    if not program.exists():
        raise Unavailable("py-spy is not in this environment: make setup")
    command = [str(program), "record", "--pid", str(pid), "--format", "raw", "--output", str(output)]
    # By functions, not by lines.
    command += ["--rate", str(RATE), "--duration", str(seconds), "--function"]
    with output.with_suffix(".log").open("wb") as log:
        return subprocess.Popen([*command, *(["--subprocesses"] if below else [])], stdout=log, stderr=log)


def merged(stacks: Mapping[str, int]) -> Counter[str]:
    """The stacks of several processes as if they were one: each begins with the processes it is below."""
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        if names := [name for name in stack.split(";") if not name.startswith("process ")]:
            found[";".join(names)] += count
    return found


def collapse(recording: Mapping[str, Any]) -> Counter[str]:
    """The stacks of a flight recording, as `jfr print --json` has it."""
    found: Counter[str] = Counter()
    for event in recording["recording"]["events"]:
        trace = event["values"].get("stackTrace")
        if not trace:
            continue
        names = []
        for frame in reversed(trace["frames"]):
            method = frame["method"]
            names.append(f"{method['type']['name'].replace('/', '.')}.{method['name']}".replace(";", ","))
        found[";".join(names)] += 1
    return found


class Flight:
    """A flight recording of a JVM."""

    def __init__(self, pid: int, file: Path) -> None:
        self._pid, self._file = pid, file
        _run("jcmd", str(pid), "JFR.start", "name=profile", "settings=profile")

    def stacks(self) -> Counter[str]:
        """End it; what was running."""
        file = str(self._file.resolve())
        _run("jcmd", str(self._pid), "JFR.stop", "name=profile", f"filename={file}")
        printed = _run("jfr", "print", "--json", "--stack-depth", "64", "--events", "ExecutionSample", file)
        return collapse(json.loads(printed))


def profile(console: Console, root: int, out: Path, seconds: int) -> list[str]:
    """Sample a pipeline whose driver is `root` for so long; what was written. Waits until it captures."""
    out.mkdir(parents=True, exist_ok=True)
    found = _captures(root)
    with console.status(f"sampling {', '.join(found)} for {seconds} seconds"):
        flight = Flight(found["jvm"], out / "jvm.jfr") if "jvm" in found and _flies(console) else None
        spies = {
            name: spy(pid, out / f"{name}.folded", seconds, below=name == "workers")
            for name, pid in found.items()
            if name != "jvm"
        }
        codes = {name: process.wait() for name, process in spies.items()}
    stacks = {}
    for name, code in codes.items():
        file = out / f"{name}.folded"
        if not file.exists():
            told = file.with_suffix(".log").read_text(errors="replace").strip()
            raise Unavailable(
                f"py-spy could not sample the {name} (exit code {code}): {told}\n"
                "It must be allowed to trace other processes: run as root, or with the capability SYS_PTRACE"
            )
        file.with_suffix(".log").unlink()
        stacks[name] = merged(flame.parsed(file.read_text(encoding="utf-8")))
        file.write_text(flame.folded(stacks[name]), encoding="utf-8")
    if flight is not None:
        stacks["jvm"] = flight.stacks()
        (out / "jvm.folded").write_text(flame.folded(stacks["jvm"]), encoding="utf-8")
    return [_written(console, name, out, found) for name, found in stacks.items()]


def _written(console: Console, name: str, out: Path, stacks: Mapping[str, int]) -> str:
    file = out / f"{name}.svg"
    file.write_text(flame.svg(name, stacks), encoding="utf-8")
    console.print(f"[bold]{file}[/] ({sum(stacks.values()):,} samples)", highlight=False)
    for function, share in flame.hottest(stacks):
        console.print(f"  {share:6.1%}  {function}", highlight=False, markup=False)
    return str(file)


def _captures(root: int) -> dict[str, int]:
    """The processes of a pipeline once it captures, and has workers where it will have some."""
    deadline, captured = time.monotonic() + PATIENCE, None
    while True:
        found, now = processes(root), time.monotonic()
        if "capture" in found and captured is None:
            captured = now
        if {"capture", "workers"} <= found.keys() or (
            captured is not None and now > captured + WORKERS_PATIENCE
        ):
            return found
        if not psutil.pid_exists(root) or psutil.Process(root).status() == psutil.STATUS_ZOMBIE:
            raise Unavailable("the pipeline ended before anything could be sampled")
        if captured is None and now > deadline:
            raise Unavailable(f"after {PATIENCE:.0f} seconds the pipeline had not begun to capture")
        time.sleep(0.2)


def _flies(console: Console) -> bool:
    missing = [name for name in ("jcmd", "jfr") if shutil.which(name) is None]
    if missing:
        console.print(f"the JVM is left out: {', '.join(missing)} of a JDK is not on PATH")
    return not missing


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise Unavailable(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


@contextlib.contextmanager
def running(pipeline: Path | None, seconds: int) -> Iterator[int]:
    """A pipeline's driver, or the demonstration, as long as the block runs."""
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="profile-") as name, (Path(name) / "log").open("w+") as log:
        if pipeline is None:
            command = [sys.executable, "-m", "tailrace.demo"]
            environment["DEMO_SECONDS"] = str(int(seconds + PATIENCE))
            directory = Path(name)
        else:
            # Relative paths in the file are its own directory's.
            command = [sys.executable, "-m", "tailrace.cli", "run", "--config", str(pipeline.resolve())]
            directory = Path.cwd()
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
        try:
            yield process.pid
        except Unavailable as error:
            log.seek(0)
            raise Unavailable(f"{error}\n{log.read()[-2000:]}".strip()) from None
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main(words: Sequence[str]) -> int:
    """Run, sample, draw."""
    parser = argparse.ArgumentParser(prog="make profile", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pipeline", nargs="?", type=Path, help="a tailrace.toml (the demonstration's)")
    parser.add_argument("--pid", type=int, help="the driver of a pipeline that runs already")
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"how long to sample ({SECONDS})")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where the pictures go ({OUT}/)")
    options = parser.parse_args(words)
    if options.pipeline is not None and not options.pipeline.is_file():
        parser.error(f"{options.pipeline} is not there")
    if options.pid is not None and not psutil.pid_exists(options.pid):
        parser.error(
            f"there is no process {options.pid}: give that of `tailrace run`, as `tailrace status` names it"
        )
    console = Console()
    try:
        if options.pid is not None:
            profile(console, options.pid, options.out, options.seconds)
        else:
            with running(options.pipeline, options.seconds) as pid:
                profile(console, pid, options.out, options.seconds)
    except Unavailable as error:
        console.print(str(error), markup=False, highlight=False)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))

"""`scripts/system-packages` on machines that lack things, played by a PATH of small programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = ["bash", "sed", "head", "env"]
JAVA = "#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n"


class Machine:
    """A directory that is the whole PATH: what is not in it is not installed."""

    def __init__(self, root: Path, place: Path) -> None:
        self.script = root / "scripts/system-packages"
        self.place = place
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found
            (place / tool).symlink_to(found)
        self.program("id", "#!/bin/sh\necho 0\n")

    def program(self, name: str, text: str) -> None:
        (self.place / name).write_text(text)
        (self.place / name).chmod(0o755)

    def python(self) -> None:
        self.program("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    def java(self, version: str) -> None:
        self.program("java", JAVA.format(version=version))

    def apt(self, *, offers: str, java: str) -> None:
        """An apt-get that knows some packages, notes what it is asked for and then installs a java."""
        self.program("apt-cache", f'#!/bin/sh\ncase "$2" in {offers}) echo "$2";; esac\n')
        text = JAVA.format(version=java).replace("'", "'\\''")
        self.program(
            "apt-get",
            f'#!/bin/sh\nset -e\ncd {self.place}\necho "$@" >> asked\n'
            f"case \"$2\" in install) printf '%s' '{text}' > java; {shutil.which('chmod')} 755 java;; esac\n",
        )

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.place), "HOME": os.environ.get("HOME", "/"), **variables}
        return subprocess.run(
            [str(self.place / "bash"), str(self.script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def asked(self) -> list[str]:
        file = self.place / "asked"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Machine:
    return Machine(root, tmp_path)


def test_a_machine_that_has_everything_is_left_alone(machine: Machine) -> None:
    machine.python()
    machine.java("17.0.15")
    machine.apt(offers="openjdk-17-jre-headless", java="17")
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr, machine.asked) == (0, "", "", [])


def test_a_missing_java_is_installed(machine: Machine) -> None:
    machine.python()
    machine.apt(offers="openjdk-17-jre-headless|openjdk-21-jre-headless", java="17.0.1")
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Setting up: installing java with apt-get\n"
    assert machine.asked == [
        "-qq update",
        "-qq install -y --no-install-recommends openjdk-17-jre-headless",
    ]


def test_a_release_without_java_17_gets_the_next_one(machine: Machine) -> None:
    machine.python()
    machine.apt(offers="openjdk-21-jre-headless", java="21.0.2")
    assert machine.run().returncode == 0
    assert machine.asked[-1].endswith("openjdk-21-jre-headless")


def test_java_home_counts_before_the_path(machine: Machine) -> None:
    machine.python()
    machine.java("11.0.2")
    (machine.place / "jdk/bin").mkdir(parents=True)
    machine.program("jdk/bin/java", JAVA.format(version="21"))
    assert machine.run(JAVA_HOME=str(machine.place / "jdk")).returncode == 0


def test_an_old_java_that_stays_first_is_explained(machine: Machine) -> None:
    machine.python()
    machine.apt(offers="openjdk-17-jre-headless", java="1.8.0_292")
    done = machine.run()
    assert done.returncode == 1
    assert "point JAVA_HOME at the newer one" in done.stderr


def test_a_machine_without_apt_is_told_what_is_missing(machine: Machine) -> None:
    machine.java("17")
    done = machine.run()
    assert done.returncode == 1
    assert "Missing here: python3 python3-venv." in done.stderr
    assert "no apt-get" in done.stderr


def test_neither_root_nor_sudo_is_told_what_to_have_installed(machine: Machine) -> None:
    machine.python()
    machine.apt(offers="openjdk-17-jre-headless", java="17")
    machine.program("id", "#!/bin/sh\necho 1000\n")
    done = machine.run()
    assert (done.returncode, machine.asked) == (1, [])
    assert "Neither root nor sudo" in done.stderr


def test_sudo_is_used_where_needed(machine: Machine) -> None:
    machine.python()
    machine.apt(offers="openjdk-17-jre-headless", java="17")
    machine.program("id", "#!/bin/sh\necho 1000\n")
    machine.program("sudo", '#!/bin/sh\nexec "$@"\n')
    assert machine.run().returncode == 0
    assert machine.asked[-1].endswith("openjdk-17-jre-headless")

import sys
from pathlib import Path

import pytest

from tailrace.changelog import filesystem
from tailrace.changelog.filesystem import AtomicFile, open_filesystem
from tailrace.model.errors import ConfigError


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_every_way_to_name_a_local_directory_leads_to_the_same_one(tmp_path: Path, form: str) -> None:
    fs, root = open_filesystem(form.format(tmp_path))
    assert filesystem.is_local(fs)
    assert root == str(tmp_path)


def test_an_escaped_file_uri_is_unescaped_and_a_plain_path_is_not() -> None:
    assert open_filesystem("file:///a%20b")[1] == "/a b"
    assert open_filesystem("/a%20b")[1] == "/a%20b"


def test_a_file_uri_with_a_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="elsewhere"):
        open_filesystem("file://elsewhere/tmp")


def test_a_scheme_nobody_knows_is_refused_without_showing_the_uri() -> None:
    with pytest.raises(ConfigError) as raised:
        open_filesystem("nosuch://user:canary@host/x")
    assert "nosuch" in str(raised.value)
    assert "canary" not in str(raised.value)


def test_without_fsspec_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ConfigError) as raised:
        open_filesystem("memory://x")
    assert raised.value.remedy == "pip install 'tailrace[fsspec]'"


def test_a_file_in_the_making_is_invisible_and_leaves_nothing_when_discarded(tmp_path: Path) -> None:
    fs, root = open_filesystem(str(tmp_path))
    file = AtomicFile(fs, f"{root}/x")
    file.write(b"half")
    assert not (tmp_path / "x").exists()
    file.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["{}/state", "memory://filesystem-test{}"])
def test_files_can_be_put_replaced_listed_and_removed_on_every_filesystem(tmp_path: Path, place: str) -> None:
    fs, root = open_filesystem(place.format(tmp_path))
    assert filesystem.listing(fs, root) == {}
    filesystem.make_directory(fs, root)
    filesystem.put(fs, f"{root}/a", b"one")
    filesystem.put(fs, f"{root}/a", b"three")
    assert filesystem.listing(fs, root) == {"a": 5}
    assert filesystem.get(fs, f"{root}/a") == b"three"
    filesystem.remove(fs, f"{root}/a")
    filesystem.remove(fs, f"{root}/a")
    assert filesystem.get(fs, f"{root}/a") is None

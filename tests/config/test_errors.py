"""What a wrong file is told: every problem, with its line, its key and what was meant; never a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.config import load_config
from tailrace.model.errors import ConfigError
from tests.config.conftest import MINIMAL, Refuse

LAKE = '[sinks.lake]\ntype = "delta"\npath = "lake"\n'
OUT = '[sinks.out]\ntype = "stdout"\n'
SOURCE = '[source]\nurl = "sqlite:shop.db"\n'


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (
            SOURCE + 'tabels = ["a"]\n[[feed]]\n',
            "file:3 (source.tabels)",
            "unknown key `tabels`; did you mean `tables`?",
        ),
        ("nmae = 'x'\n" + MINIMAL, "file:1 (nmae)", "unknown key `nmae`; did you mean `name`?"),
        (
            MINIMAL + "snapshoot = true\n",
            "file:4 (feed[0].snapshoot)",
            "unknown key `snapshoot`; did you mean `snapshot`?",
        ),
        (
            MINIMAL + LAKE + 'pth = "x"\n',
            "file:7 (sinks.lake.pth)",
            "unknown key `pth`; did you mean `path`?",
        ),
        (MINIMAL + OUT + 'path = "x"\n', "file:6 (sinks.out.path)", "unknown key `path`"),
        (
            MINIMAL + '[spark]\nmastr = "x"\n',
            "file:5 (spark.mastr)",
            "unknown key `mastr`; did you mean `master`?",
        ),
        ("[[feed]]\n", "file:1 (source)", "the key `source` is missing"),
        ("[[feed]]\n[source]\nsetup = 'auto'\n", "file:2 (source.url)", "the key `url` is missing"),
        (MINIMAL + "[sinks.x]\npath = 'y'\n", "file:4 (sinks.x.type)", "the key `type` is missing"),
        (
            MINIMAL + "[sinks.x]\ntype = 'dleta'\n",
            "file:5 (sinks.x.type)",
            "must be one of `delta`, `stdout`, `http`, `sqlite`, `opensearch`, not `dleta`;"
            " did you mean `delta`?",
        ),
        (
            "[source]\nurl='sqlite:a'\n[[feeds]]\n",
            "file:3 (feeds)",
            "unknown key `feeds`; did you mean `feed`?",
        ),
        (
            "[source]\nurl='sqlite:a'\n[[feed]]\nsnapshot='yes'\n",
            "file:4 (feed[0].snapshot)",
            "must be true or false",
        ),
        (
            "[source]\nurl='mysql://h/shop'\n[[feed]]\n",
            "file:2 (source.url)",
            "this version of Tailrace has no MySQL capture",
        ),
        ("on_error = 'halt'\n" + MINIMAL, "file:1 (on_error)", "must be `stop` or `skip`"),
        ("name = 7\n" + MINIMAL, "file:1 (name)", "must be a string"),
        ("name = 'a/b'\n" + MINIMAL, "file:1 (name)", "must be a name of letters, digits"),
        (MINIMAL + "[batch]\nmax_rows = true\n", "file:5 (batch.max_rows)", "must be a whole number"),
        (
            MINIMAL + "[batch]\nmax_rows = 0\n",
            "file:5 (batch.max_rows)",
            "must be greater than or equal to 1",
        ),
        (
            MINIMAL + "[batch]\nmax_bytes = '64 parsecs'\n",
            "file:5 (batch.max_bytes)",
            "must be a size above zero",
        ),
        (
            MINIMAL + "[state]\nretention = 30\n",
            "file:5 (state.retention)",
            "must be a duration with its unit",
        ),
        (
            MINIMAL + "[state]\ndirectory = 's3://x/y'\n",
            "file:5 (state.directory)",
            "must be a path of this machine",
        ),
        (MINIMAL + "snapshot = 'perhaps'\n", "file:4 (feed[0].snapshot)", "must be true or false"),
        (MINIMAL + "tables = 'a'\n", "file:4 (feed[0].tables)", "must be an array"),
        (MINIMAL + "tables = [\n'a',\n'a']\n", "file:4 (feed[0].tables)", "names a table twice"),
        (MINIMAL + "tables = [\n'a',\n1]\n", "file:6 (feed[0].tables[1])", "must be a string"),
        ("state = 3\n" + MINIMAL, "file:1 (state)", "must be a table"),
        ("sinks = 3\n" + MINIMAL, "file:1 (sinks)", "must be a table"),
        ("[source]\nurl = 'shop.db'\n[[feed]]\n", "file:2 (source.url)", "a source URL begins with its kind"),
        (
            "[source]\nurl = 'sqlite://host/x'\n[[feed]]\n",
            "file:2 (source.url)",
            "must name a file and no host",
        ),
        (
            SOURCE + "types = {'a.b' = 'strng'}\n[[feed]]\n",
            "file:3 (source.types)",
            "unknown type; did you mean `string`?",
        ),
        (
            SOURCE + "types = {b = 'string'}\n[[feed]]\n",
            "file:3 (source.types)",
            "must name a table and a column",
        ),
        (
            MINIMAL + "[sinks.x]\ntype='http'\nurl='ftp://h'\n",
            "file:6 (sinks.x.url)",
            "must be an `http:` or `https:` URL",
        ),
        (
            MINIMAL + "[sinks.x]\ntype='http'\nurl='http://h'\ntimeout='0s'\n",
            "file:7 (sinks.x.timeout)",
            "must be greater",
        ),
        (MINIMAL + "[sinks.'a b']\ntype='stdout'\n", "file:4 (sinks.a b)", "must be a name of letters"),
    ],
)
def test_a_wrong_key_is_named_with_its_line(refuse: Refuse, text: str, place: str, message: str) -> None:
    error = refuse(text)
    assert error.place == place
    assert message in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("text", "place", "message", "remedy"),
    [
        (SOURCE, "file:1", "there is nothing to do", "[[feed]]"),
        (
            MINIMAL + 'sink = "uot"\n' + OUT,
            "file:4 (feed[0].sink)",
            "no sink `uot`; did you mean `out`?",
            "[sinks.uot]",
        ),
        (MINIMAL + 'sink = "lake"\n' + LAKE, "file:4 (feed[0].sink)", "takes no change feed", "[[table]]"),
        (
            SOURCE + OUT + '[[table]]\nname="a"\nsink="out"\n',
            "file:7 (table[0].sink)",
            "cannot hold a table",
            "[[feed]]",
        ),
        (
            SOURCE + OUT + '[[table]]\nname="a"\n',
            "file:5 (table[0])",
            "there is no delta sink",
            "[sinks.lake]",
        ),
        (
            SOURCE + LAKE + LAKE.replace("lake", "pond") + '[[table]]\nname="a"\n',
            "file:9 (table[0])",
            "there are several: `lake`, `pond`",
            "sink",
        ),
        (
            MINIMAL + OUT + OUT.replace(".out", ".too"),
            "file:3 (feed[0])",
            "there are several: `out`, `too`",
            "sink",
        ),
        (
            SOURCE + LAKE + '[[table]]\nname="a"\n[[table]]\nname="b"\nas="a"\n',
            "file:10 (table[1].as)",
            "the target `a` in `lake` is taken",
            "another `as`",
        ),
        (
            SOURCE + LAKE + '[[table]]\nname="*"\n[[table]]\nname="*"\n',
            "file:9 (table[1].name)",
            "the target `*` in `lake` is taken",
            "another",
        ),
        (
            SOURCE + LAKE + '[[table]]\nname="*"\nas="x"\n',
            "file:8 (table[0].as)",
            "same target",
            "leave `as` out",
        ),
    ],
)
def test_what_contradicts_itself_comes_with_a_remedy(
    refuse: Refuse, text: str, place: str, message: str, remedy: str
) -> None:
    error = refuse(text)
    assert error.place == place
    assert message in error.message
    assert remedy in (error.remedy or "")


def test_a_feed_of_a_table_that_is_not_captured_is_refused(refuse: Refuse) -> None:
    error = refuse(SOURCE + 'tables = ["orders"]\n[[feed]]\ntables = [\n"order"]\n')
    assert error.place == "file:6 (feed[0].tables[0])"
    assert error.message == "`order` is not among `source.tables`; did you mean `orders`?"


def test_every_problem_is_told_at_once_in_the_order_of_the_file(refuse: Refuse) -> None:
    error = refuse(
        "[[feed]]\nsink = 'x'\n[source]\nurl = 'sqlite:${DB}'\nsetpu = 1\n[batch]\nmax_rows = 'a'\n"
    )
    assert str(error).splitlines()[:4] == [
        "file:2 (feed[0].sink): there is no sink `x` (remedy: add `[sinks.x]` or name another)",
        "file:4 (source.url): the environment variable `DB` is not set (remedy: export DB=…)",
        "file:5 (source.setpu): unknown key `setpu`; did you mean `setup`?",
        "file:7 (batch.max_rows): must be a whole number",
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a = 1\nb = \n", 2, "is not TOML: invalid value, column 5"),
        ("a = 1\n[b\n", 2, "is not TOML"),
        ("a = 1\na = 2\n", 2, "is not TOML: cannot overwrite a value"),
        ("a = 1\nb = '''\nx\n", 3, "is not TOML"),
        ("a = " + "1" * 5000, 1, "is not TOML"),
        ("a = " + "[" * 5000 + "]" * 5000, 1, "is nested too deeply"),
        ("a" + ".a" * 500 + " = 1", 1, "is nested too deeply"),
    ],
)
def test_a_file_that_is_not_toml_is_told_where(refuse: Refuse, text: str, line: int, message: str) -> None:
    error = refuse(text)
    assert error.place == f"file:{line}"
    assert message in error.message


def test_a_file_that_is_not_utf8_is_told_where(file: Path) -> None:
    file.write_bytes(MINIMAL.encode() + b"# \xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8 text") as raised:
        load_config(file, environ={})
    assert raised.value.place == f"{file}:4"


def test_a_huge_file_is_not_read(file: Path) -> None:
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than 1024 KB"):
        load_config(file, environ={})


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / name, environ={})
    assert raised.value.place == str(tmp_path / name)


@pytest.mark.parametrize(
    ("variables", "place", "message"),
    [
        (
            {"TAILRACE_SOURC__URL": "x"},
            "variable TAILRACE_SOURC__URL",
            "unknown key `sourc`; did you mean `source`?",
        ),
        (
            {"TAILRACE_SOURCE__ULR": "x"},
            "variable TAILRACE_SOURCE__ULR",
            "unknown key `ulr`; did you mean `url`?",
        ),
        ({"TAILRACE_BATCH__MAX_ROWS": "x"}, "variable TAILRACE_BATCH__MAX_ROWS", "must be a whole number"),
        ({"TAILRACE_FEED__4__SINK": "x"}, "variable TAILRACE_FEED__4__SINK", "the file has no such entry"),
        ({"TAILRACE_FEED__0__TABLES": "[1"}, "variable TAILRACE_FEED__0__TABLES", "TOML can read"),
    ],
)
def test_a_wrong_variable_is_named(
    refuse: Refuse, variables: dict[str, str], place: str, message: str
) -> None:
    error = refuse(MINIMAL, variables)
    assert error.place == place
    assert message in error.message


def test_a_wrong_flag_is_named(refuse: Refuse) -> None:
    error = refuse(MINIMAL, state__akc="sink")
    assert (error.place, error.message) == ("option state.akc", "unknown key `akc`; did you mean `ack`?")


def test_a_boolean_comes_from_a_variable_too(file: Path) -> None:
    file.write_text(MINIMAL)
    loaded = load_config(file, environ={"TAILRACE_FEED__0__SNAPSHOT": "false"})
    assert loaded.feeds[0].snapshot is False


def test_an_unknown_type_lists_those_there_are(refuse: Refuse) -> None:
    error = refuse(SOURCE + "types = {'a.b' = 'money'}\n[[feed]]\n")
    assert "`long`" in str(error.remedy)
    assert "`decimal(10,2)`" in str(error.remedy)


def test_a_missing_file_comes_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / "my shop.toml")
    assert raised.value.remedy == f"tailrace init sqlite:shop.db --output '{tmp_path}/my shop.toml'"

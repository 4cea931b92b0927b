"""Configuration: `tailrace.toml` as typed, frozen models.

`load_config` reads the file (`load`), lays `TAILRACE_*` variables and flags over it (`overrides`), resolves
references to the environment (`references`), validates the result with the models (`models`, `sinks`,
`values`), checks what spans several sections (`checks`), reads the schemas of indexes (`schemas`, `index`),
and turns whatever is wrong into one ConfigError that names file and line (`problems`, `lines`).
`config_schema` and `keys` describe the models (`schema`, `outline`). `build_lock` makes one file of all that,
which `load_lock` reads (`lock`, `secrets`). Nothing here connects to anything.
"""

from tailrace.config.load import load_config
from tailrace.config.lock import build_lock, inputs_of, load_lock, read_lock, reload
from tailrace.config.models import Batch, Config, Feed, Index, Source, Spark, State, Table
from tailrace.config.outline import Key, keys
from tailrace.config.references import expand
from tailrace.config.schema import config_schema
from tailrace.config.sinks import DeltaSink, HttpSink, OpenSearchSink, Sink, SqliteSink, StdoutSink

__all__ = [
    "Batch",
    "Config",
    "DeltaSink",
    "Feed",
    "HttpSink",
    "Index",
    "Key",
    "OpenSearchSink",
    "Sink",
    "Source",
    "Spark",
    "SqliteSink",
    "State",
    "StdoutSink",
    "Table",
    "build_lock",
    "config_schema",
    "expand",
    "inputs_of",
    "keys",
    "load_config",
    "load_lock",
    "read_lock",
    "reload",
]

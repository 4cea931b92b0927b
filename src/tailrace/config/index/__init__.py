"""The index language: `*.schema.yml` as typed, frozen models.

`load_index` reads the file as a tree with lines (`tree`), validates it with the models (`models`, `values`)
and the rules that span several keys (`rules`), and turns whatever is wrong into one ConfigError that names
file, line and field (`problems`, `places`). `index_schema` describes the language to editors (`schema`).
Nothing here connects to anything.
"""

from tailrace.config.index.load import index_from, load_index, parse_index
from tailrace.config.index.models import IndexSchema
from tailrace.config.index.schema import index_schema

__all__ = ["IndexSchema", "index_from", "index_schema", "load_index", "parse_index"]

"""Any schema of the grammar is read, kept as JSON and valid for editors; any change to it is judged alike."""

from __future__ import annotations

import copy
import json
import pickle

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.config.index import index_from, parse_index
from tailrace.config.index.rules import rules
from tailrace.documents.mapping import derive_mapping
from tailrace.model.errors import ConfigError
from tests.config.index.grammar import Grammar
from tests.config.index.test_schema import SCHEMA, accepts

SEEDS = st.integers(0, 2**32)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_any_schema_is_read_kept_and_valid(seed: int) -> None:
    # What occurs twice would be an alias in the YAML.
    body = json.loads(json.dumps(Grammar(seed).schema()))
    assert accepts(SCHEMA, body)
    schema = index_from(copy.deepcopy(body), "lock")
    assert accepts(SCHEMA, schema.written())
    assert index_from(json.loads(json.dumps(schema.written())), "lock") == schema
    assert pickle.loads(pickle.dumps(schema)) == schema  # noqa: S301 (made right here)
    for text in (yaml.safe_dump(body, allow_unicode=True, sort_keys=False), json.dumps(body)):
        read = parse_index(text, "file")
        assert read == schema
        assert len(derive_mapping(read).fields) == sum(1 for _ in read.walk())


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_what_is_changed_at_random_is_judged_alike(seed: int) -> None:
    grammar = Grammar(seed)
    body = grammar.schema()
    grammar.change(body)
    valid = accepts(SCHEMA, body)
    try:
        index_from(body, "file")
    except ConfigError:
        # What JSON Schema cannot say are rules over several keys.
        assert not valid or list(rules(body))
    else:
        assert valid

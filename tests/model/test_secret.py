"""Secrets stay secret, whatever prints them."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
from pydantic import BaseModel, ConfigDict

from tailrace.model.secret import Secret, holds_secret, mask_url

CANARY = "c4n4ry-p@ss:w0rd/?"


@dataclasses.dataclass
class Holder:
    secret: Secret


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    secret: Secret


def test_no_way_of_showing_a_secret_shows_it() -> None:
    secret = Secret(CANARY)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>40}",
        "%s" % secret,  # noqa: UP031 - this way too
        repr(Holder(secret)),
        str(dataclasses.asdict(Holder(secret))),
        repr(Model(secret=secret)),
        json.dumps({"s": secret}, default=str),
        str(pickle.dumps(secret)),
        str(vars(Holder(secret))),
    ]
    assert not [text for text in shown if "c4n4ry" in text]
    assert secret.reveal() == CANARY


def test_a_pickled_secret_arrives_as_its_mask() -> None:
    assert pickle.loads(pickle.dumps(Secret(CANARY))).reveal() == "***"  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://me:p@ssw0rd@db:5432/x", "postgres://me:***@db:5432/x"),
        ("postgres://db/x?password=hunter2&sslmode=require", "postgres://db/x?password=***&sslmode=require"),
        ("postgres://me@db/x", "postgres://me@db/x"),
        ("sqlite:shop.db", "sqlite:shop.db"),
        ("sqlite:///data/shop.db", "sqlite:///data/shop.db"),
        ("http://[broken", "***"),
        # Characters that should have been escaped: libpq takes a password with ? and # as it is.
        ("postgres://me:pa/ss@db/x", "postgres://me:***@db/x"),
        ("postgres://me:12/ss@db/x", "postgres://me:***@db/x"),
        ("postgres://me:pa?ss@db/x", "postgres://me:***@db/x"),
        ("postgres://me:pa#ss@db/x", "postgres://me:***@db/x"),
        ("postgres://me:pa?s=s@db/x", "postgres://me:***@db/x"),
        ("postgres://me:p@ss/word@db/x", "postgres://me:***@db/x"),
        ("postgres://db/x?a=1#&password=hunter2", "postgres://db/x?a=1%23&password=***"),
        ("postgres://db/x?pass%77ord=hunter2", "postgres://db/x?password=***"),
        ("http://hooks:8080/x?mail=a@b", "http://hooks:8080/x?mail=a@b"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize("password", ["hunter2", "a/b", "1/b", "a?b", "a#b", "a?b=c", "a@b/c", "%41"])
def test_a_password_that_is_written_out_is_found_and_a_reference_is_none(password: str) -> None:
    assert holds_secret(f"postgres://me:{password}@db/x")
    assert holds_secret(f"postgres://me@db/x?sslmode=require&password={password}")
    assert holds_secret(f"postgres://me@db/x?a=1#&password={password}")
    assert not holds_secret("postgres://me:${NAME}@db:5432/x?password=${NAME}&user=a@b")

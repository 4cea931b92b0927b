"""Secrets stay secret, whatever prints them."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
from pydantic import BaseModel, ConfigDict

from tailrace.model.secret import Secret, mask_url

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
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert mask_url(url) == shown

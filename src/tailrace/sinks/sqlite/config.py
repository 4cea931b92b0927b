"""Settings of the document store."""

from __future__ import annotations

from dataclasses import dataclass

DAY = 86_400.0


@dataclass(frozen=True)
class SqliteStoreConfig:
    """`path` is the file; its directory must exist, on a disk of this machine.

    A deleted document's version is remembered for `remember_deletes` seconds, so that a writer that comes
    later than its delete, but not later than that, cannot bring it back. A write waits `busy_timeout` seconds
    for other writers. One transaction takes at most `piece_documents` documents and `piece_bytes` of their
    text, or one document where that is longer; a document of more than `max_document_bytes` is rejected.
    """

    path: str
    remember_deletes: float = 7 * DAY
    busy_timeout: float = 60.0
    piece_documents: int = 5_000
    piece_bytes: int = 16 * 1024 * 1024
    max_document_bytes: int = 256 * 1024 * 1024

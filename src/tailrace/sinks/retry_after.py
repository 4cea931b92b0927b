"""The header by which a server says how long it wants to be left alone."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime


def seconds_of(header: str | None) -> float | None:
    """What Retry-After says: seconds, or a date. None where it says nothing that is understood."""
    if header is None:
        return None
    try:
        seconds = float(header)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None

"""How fast chunks were taken."""

from __future__ import annotations


def kept(times: list[float], rate: int, chunk: int) -> float:
    """Rows a second from the first chunk on, which in no second or more of it are a fifth above the rate."""
    for begin in times:
        for end in times:
            if end - begin >= 1:
                rows = chunk * sum(begin < at <= end for at in times)
                # Less than a chunk's budget may be left over from before.
                assert rows <= 1.2 * rate * (end - begin) + chunk
    return chunk * sum(at > times[0] for at in times) / (times[-1] - times[0])

"""Changes as lines of JSON, posted to an HTTP endpoint."""

from tailrace.sinks.http.config import HttpConfig
from tailrace.sinks.http.sink import HttpSink

__all__ = ["HttpConfig", "HttpSink"]

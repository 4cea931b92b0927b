"""Changes or documents as lines of JSON on a stream, by default the process's standard output."""

from tailrace.sinks.stdout.config import StdoutConfig
from tailrace.sinks.stdout.sink import StdoutDocumentSink, StdoutSink

__all__ = ["StdoutConfig", "StdoutDocumentSink", "StdoutSink"]

"""What operators see of a running server: its log as JSON lines, trackers, and figures for Prometheus over HTTP."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from threading import Thread
from time import time
from typing import Any, NamedTuple

from torch import Tensor

from fairlead import __version__
from fairlead.checkpoint.durable_files import make_folder
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.errors import FieldError
from fairlead.experiments.record_io import strict
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.tracking import Tracker
from fairlead.flower.roster import LOG
from fairlead.records import Conditions, RoundRecord
from fairlead.reply_checks import Reason

_REASONS = {*Reason, "late", "busy", "failed", "away", "deadline", "no quorum", "no secure sum", "exposed"}
"""Reasons with a series of their own. Clients may send any other, which count as "other"."""


class ServerNow(NamedTuple):
    """What a server knows between two rounds."""

    conditions: Conditions
    consistency: ConsistencyReport
    rounds: int | None
    """Of the run, when it is finished."""
    connected: int
    """Clients at a node."""


class ServerFigures(Tracker):
    """The figures of a run, counted from its first round: a resumed server continues the counts."""

    def __init__(self, now: Callable[[], ServerNow]) -> None:
        self._now, self.text = now, ""
        """The latest figures, for readers in other threads."""
        self._counts = Counter[str]()
        self._reasons = Counter[str]()
        self._asked, self._arrived = Counter[int](), Counter[int]()
        self._last: RoundRecord | None = None
        self._evaluation: dict[str, float] = {}

    def count(self, records: Iterable[RoundRecord]) -> None:
        """Count rounds, and write the text anew with the estimates and weights of now."""
        for record in records:
            self._counts.update(
                rounds=1, empty=int(not record.arrived), up=record.bytes_up, down=record.bytes_down
            )
            self._asked.update(record.asked)
            self._arrived.update(record.arrived)
            self._reasons.update(str(r.reason) if r.reason in _REASONS else "other" for r in record.refused)
            if record.evaluation is not None:
                self._evaluation = {"loss": record.evaluation.loss, **record.evaluation.metrics}
            self._last = record
        conditions, consistency, rounds, connected = self._now()
        steps, rates = conditions.num_steps, conditions.arrival
        counts, last, everyone = self._counts, self._last, range(len(conditions.weights))
        asked, arrived = ({c: known[c] for c in everyone} for known in (self._asked, self._arrived))
        self.text = "".join(
            _family(*row)
            for row in (
                ("info", "Version of the server.", "version", {__version__: 1}),
                ("rounds_planned", "Rounds of the run.", "", rounds),
                ("rounds_total", "Finished rounds.", "", counts["rounds"]),
                ("empty_rounds_total", "Rounds that used no update.", "", counts["empty"]),
                ("asked_total", "Requests for updates.", "", self._asked.total()),
                ("arrived_total", "Updates used.", "", self._arrived.total()),
                ("missing_total", "Updates that are missing.", "reason", dict(sorted(self._reasons.items()))),
                ("received_bytes_total", "Size of updates.", "", counts["up"]),
                ("sent_bytes_total", "Size of models sent.", "", counts["down"]),
                ("round_seconds", "Duration of the last round.", "", last and last.seconds),
                ("updated_timestamp_seconds", "Time of these figures.", "", time()),
                ("train_loss", "Training loss of the last round.", "", last and last.train_loss),
                ("evaluation", "The latest evaluation.", "metric", self._evaluation),
                ("misplaced_weight", "Weight at the wrong clients.", "", consistency.total_variation),
                ("clients_connected", "Clients at a node.", "", connected),
                ("client_asked_total", "Requests to a client.", "client", asked),
                ("client_arrived_total", "Updates used of a client.", "client", arrived),
                ("client_arrival_rate", "Estimated rate of arrival.", "client", _by_client(rates)),
                ("client_steps", "Expected local steps.", "client", _by_client(steps)),
                ("client_weight", "Intended weight.", "client", _by_client(consistency.intended)),
                ("client_measured_weight", "Real weight.", "client", _by_client(consistency.surrogate)),
            )
        )

    def write(self, record: RoundRecord) -> None:
        self.count([record])

    def close(self, outcome: str) -> None:
        """Nothing is left to do."""


def _by_client(values: Tensor | None) -> dict[int, float]:
    return {} if values is None else dict(enumerate(values.tolist()))


def _family(name: str, text: str, label: str, values: Mapping[Any, float] | float | None) -> str:
    """The lines of a metric with a sample for each value of a label, or with one; an unknown value has none."""
    found = values if isinstance(values, Mapping) else {} if values is None else {"": values}
    full, kind = f"fairlead_{name}", "counter" if name.endswith("_total") else "gauge"
    lines = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"] if found else []
    for word, value in found.items():
        # A string of JSON has the escapes of Prometheus.
        labels = f"{{{label}={json.dumps(str(word), ensure_ascii=False)}}}" if label else ""
        lines.append(f"{full}{labels} {value!r}")
    return "".join(f"{line}\n" for line in lines)


@contextmanager
def served(figures: ServerFigures, address: str | None) -> Iterator[None]:
    """Serve the figures at http://ADDRESS/metrics meanwhile; nothing without an address."""
    if not address:
        yield
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise FieldError(f"metrics-address must be HOST:PORT, such as 127.0.0.1:9464, got {address!r}.")

    class Scrape(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            content = figures.text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """A scrape leaves no line in the log."""

    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if host.startswith("[") else AF_INET

    try:
        server = Server((host.strip("[]"), int(port)), Scrape)
    except OSError as error:
        raise FieldError(
            f"metrics-address {address!r} cannot be opened: {error.strerror or error}."
        ) from error
    LOG.info("Figures for Prometheus are at http://%s:%d/metrics", host, server.server_address[1])
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _JsonLog(logging.FileHandler):
    """Appends the log to a file, one JSON object per line: time, level, message, and the facts of rounds."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(strict(line | getattr(record, "facts", {})), ensure_ascii=False)


@contextmanager
def watched(
    store: RunFolder | None, figures: ServerFigures, address: str, *, json_log: bool
) -> Iterator[list[Tracker]]:
    """Let Prometheus, a file of JSON lines and the trackers that are put into the list follow a server meanwhile."""
    if store is None and json_log:
        raise FieldError("A log of JSON lines needs the folder of the run: give `folder` too.")
    following, outcome = list[Tracker]([figures] if address else []), "failed"
    handler: logging.Handler = logging.NullHandler()
    if store is not None and json_log:
        make_folder(store.path)
        handler = _JsonLog(store.path / "log.jsonl", encoding="utf-8")
    LOG.addHandler(handler)
    try:
        with served(figures, address):
            yield following
        outcome = "finished"
    except Exception as error:
        if json_log:
            LOG.error("%s: %s", type(error).__name__, error)
        raise
    finally:
        for tracker in following:
            tracker.close(outcome)
        LOG.removeHandler(handler)
        handler.close()

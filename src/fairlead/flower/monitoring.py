"""What operators see of a running server: its log as JSON lines, trackers, and figures for Prometheus over HTTP."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from threading import Thread
from time import time
from typing import Any

from torch import Tensor

from fairlead import __version__
from fairlead.checkpoint.durable_files import make_folder
from fairlead.component import Component
from fairlead.errors import FieldError
from fairlead.experiments.record_io import strict
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.tracking import Tracker, tracker_named
from fairlead.federation import Federation
from fairlead.flower.roster import LOG
from fairlead.records import RoundRecord
from fairlead.reply_checks import Reason

_REASONS = {*Reason, "late", "busy", "failed", "away", "deadline", "no quorum", "no secure sum", "exposed"}
"""Reasons with a series of their own. Clients may send any other, which count as "other"."""


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
def served(text: Callable[[], str], address: str) -> Iterator[None]:
    """Serve a text at http://ADDRESS/metrics meanwhile; nothing without an address."""
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
            content = text().encode()
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


class Watch:
    """Lets Prometheus, a file of JSON lines and trackers follow the rounds of a server.

    The figures are counted from the first round of the run: a resumed server continues the counts.
    """

    def __init__(
        self, store: RunFolder | None, *, json_log: bool, trackers: Sequence[str], address: str
    ) -> None:
        if store is None and (json_log or trackers):
            raise FieldError("json_log and trackers need the folder of the run: give `folder` too.")
        self.text = ""
        """The latest figures, for readers in other threads."""
        self._store, self._address, self._json_log = store, address, json_log
        self._following = list[Tracker]()
        self._run: tuple[Federation, Callable[[], int]] | None = None
        opening = [tracker_named(name, "trackers") for name in trackers]
        self._opening = [partial(opened, store) for opened in opening if store is not None]
        self._counts, self._reasons = Counter[str](), Counter[str]()
        self._asked, self._arrived = Counter[int](), Counter[int]()
        self._last: RoundRecord | None = None
        self._evaluation: dict[str, float] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Serve the figures and write the log meanwhile, and close the trackers with the outcome."""
        handler: logging.Handler = logging.NullHandler()
        outcome = "failed"
        if self._store is not None and self._json_log:
            make_folder(self._store.path)
            handler = _JsonLog(self._store.path / "log.jsonl", encoding="utf-8")
        LOG.addHandler(handler)
        try:
            with served(lambda: self.text, self._address):
                yield
            outcome = "finished"
        except Exception as error:
            if self._json_log:
                LOG.error("%s: %s", type(error).__name__, error)
            raise
        finally:
            for tracker in self._following:
                tracker.close(outcome)
            LOG.removeHandler(handler)
            handler.close()

    def begin(self, federation: Federation, run: Component, connected: Callable[[], int]) -> None:
        """Follow a run from the rounds that it has; `connected` counts clients at a node."""
        self._run = federation, connected
        self._count(federation.records)
        self._following += [opened(run, federation.state.round) for opened in self._opening]

    def write(self, record: RoundRecord) -> None:
        """Pass a round on."""
        self._count([record])
        for tracker in self._following:
            tracker.write(record)

    def _count(self, records: Iterable[RoundRecord]) -> None:
        """Count rounds, and rewrite the text with the current estimates and weights."""
        if self._run is None or not self._address:
            return
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
        federation, connected = self._run
        conditions, consistency = federation.conditions, federation.consistency()
        steps, rates = conditions.num_steps, conditions.arrival
        counts, last, everyone = self._counts, self._last, range(len(conditions.weights))
        asked, arrived = ({c: known[c] for c in everyone} for known in (self._asked, self._arrived))
        self.text = "".join(
            _family(*row)
            for row in (
                ("info", "Version of the server.", "version", {__version__: 1}),
                ("rounds_planned", "Rounds of the run.", "", federation.rounds),
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
                ("clients_connected", "Clients at a node.", "", connected()),
                ("client_asked_total", "Requests to a client.", "client", asked),
                ("client_arrived_total", "Updates used of a client.", "client", arrived),
                ("client_arrival_rate", "Estimated rate of arrival.", "client", _by_client(rates)),
                ("client_steps", "Expected local steps.", "client", _by_client(steps)),
                ("client_weight", "Intended weight.", "client", _by_client(consistency.intended)),
                ("client_measured_weight", "Real weight.", "client", _by_client(consistency.surrogate)),
            )
        )

"""``hingeline serve``: a page in the browser to try a tagger, see why, and correct it.

The page is one file without outside requests. The server listens on this machine only, and answers
no page but its own: requests whose ``Host`` or ``Origin`` is another one are refused, so that a
page of the web cannot reach the model through the browser.
"""

import io
import json
import math
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files as package_files
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

import hingeline.data
from hingeline.cli import app, files

#: Bytes of a request, labellings of a sentence, and contributions to a decision.
_LARGEST, _N_BEST, _N_REASONS = 1_000_000, 4, 12
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
)
_POLICY += "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Tagger:
    """A model, and the sentences that were corrected; one request at a time."""

    name = ""
    sure: Any = None  # knows how likely labels are right, of a model that was calibrated

    def __init__(self, estimator: Any, layout: "files.Layout", target: Path | None = None) -> None:
        self.estimator, self.layout, self.target = estimator, layout, target
        self.corrected: dict[tuple[Any, ...], list[str]] = {}  # rows of a sentence -> its labels
        self.lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """What the page must know of the model."""
        return {
            "name": self.name,
            "labels": [str(label) for label in self.estimator.classes_],
            "columns": self.layout.columns,
            "learns": self.estimator.n_examples_ > 0,
            "n_corrected": len(self.corrected),
        }

    def _read(self, text: str) -> Any:
        """Running text for a model of words alone, columns for others."""
        columns = self.layout.columns
        read = hingeline.data.read_raw if len(columns) == 1 else hingeline.data.read_conll
        table = read(io.StringIO(text))
        what = f"the model needs {len(columns)} columns per line ({', '.join(columns)})"
        enough = not len(table) or len(table.names) >= len(columns)
        files.require(enough, f"{what}, got {len(table.names)}.")
        sentences = [[token[: len(columns)] for token in sentence] for sentence in table]
        return files.TokenTable.from_sentences(sentences, columns)

    def tag(self, text: str) -> dict[str, Any]:
        """Labels of all sentences of a text, and how far each is ahead of the next one."""
        table = self._read(text)
        if not len(table):
            return {"sentences": []}
        labels = self.estimator.predict(table)
        found = zip(table, labels, self.estimator.decision_function(table), strict=True)
        sentences = [
            {
                "rows": [*map(list, rows)],
                "labels": [*map(str, y.tolist())],
                "leads": [x if x < math.inf else None for x in scores.max(axis=1).tolist()],
            }
            for rows, y, scores in found
        ]
        if self.sure is not None:
            for sentence, p in zip(sentences, self.sure.predict_proba_tokens(table), strict=True):
                sentence["probabilities"] = p.tolist()
        return {"sentences": sentences}

    def explain(self, rows: list[Any], position: int) -> dict[str, Any]:
        """Why a word has its label: what speaks against the best labels that give it another one.

        And other labellings of the sentence.
        """
        import numpy as np

        from hingeline.evaluation.inspection import explain

        table, names = self._table(rows), self.estimator.classes_.tolist()
        if not 0 <= position < len(table[0]):
            raise ValueError("position must be the number of a word in the sentence.")
        allowed = np.ones((len(table[0]), len(names)), dtype=bool)
        allowed[position, names.index(self.estimator.predict(table)[0][position])] = False
        reasons: list[Any] = []
        with suppress(ValueError):  # no labels with another one there: one class, or a scheme
            other = self.estimator.predict(table, allowed=[allowed])[0]
            reasons = explain(self.estimator, table[0], against=other).rows
        best = self.estimator.predict_nbest(table, _N_BEST)[0]
        return {
            "nbest": [{"labels": [*map(str, y.tolist())], "score": float(s)} for y, s in best],
            "reasons": [row._asdict() for row in reasons[:_N_REASONS]],
        }

    def correct(self, rows: list[Any], labels: list[Any]) -> dict[str, Any]:
        """Keep a corrected sentence, and learn from it where the model can."""
        table = self._table(rows)
        if len(labels) != len(table[0]) or not all(
            isinstance(label, str) and label.strip() for label in labels
        ):
            raise ValueError("a corrected sentence needs one label for each of its words.")
        if not all(label.isprintable() and " " not in label for label in labels):
            raise ValueError("labels cannot contain spaces; choose another name.")
        corrected = {tuple(map(tuple, rows)): labels}
        self._write(corrected).encode()  # refuses, before it is learnt, what no file could hold
        learns = self.estimator.n_examples_ > 0
        if learns:
            self.sure = None  # it knew the model as it was
            self.estimator.partial_fit(table, [labels], passes=1)
        self.corrected |= corrected
        if learns and self.target is not None:
            self.estimator.save(self.target, state=True, metadata=self.estimator.metadata_)
        return self.describe()

    def _table(self, rows: Any) -> Any:
        width = len(self.layout.columns)
        fine = rows and all(isinstance(row, list) for row in rows)
        if not fine or any(len(r) != width or not all(isinstance(x, str) for x in r) for r in rows):
            raise ValueError(f"a sentence is a list of words, each a list of {width} texts.")
        return files.TokenTable.from_sentences([[*map(tuple, rows)]], self.layout.columns)

    def download(self) -> str:
        """The corrected sentences in columns, the labels last."""
        return self._write(self.corrected)

    def _write(self, corrected: dict[tuple[Any, ...], list[str]]) -> str:
        sentences = [
            [(*row, label) for row, label in zip(rows, labels, strict=True)]
            for rows, labels in corrected.items()
        ]
        names = [*self.layout.columns, files.free_name("label", self.layout.columns)]
        out = io.StringIO()
        if sentences:
            hingeline.data.write_conll(out, files.TokenTable.from_sentences(sentences, names))
        return out.getvalue()


class _Handler(BaseHTTPRequestHandler):
    server: "Server"
    timeout = 30  # seconds that a connection may be silent

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if not self._is_own():
            return
        if path == "/":
            page = package_files("hingeline.cli").joinpath("serve.html").read_bytes()
            self._answer(200, page, "text/html; charset=utf-8")
        elif path == "/corrected.conll":
            with self.server.tagger.lock:
                text = self.server.tagger.download()
            self._answer(200, text.encode(), "text/plain; charset=utf-8")
        else:
            self._fail(404, "there is no such page.")

    def do_POST(self) -> None:
        tagger = self.server.tagger
        calls: dict[str, Any] = {
            "/model": (tagger.describe, {}),
            "/tag": (tagger.tag, {"text": str}),
            "/explain": (tagger.explain, {"rows": list, "position": int}),
            "/correct": (tagger.correct, {"rows": list, "labels": list}),
        }
        size = self.headers.get("Content-Length", "")
        if not self._is_own():
            return
        if self.path not in calls:
            self._fail(404, "there is no such page.")
        elif self.headers.get_content_type() != "application/json":
            self._fail(415, "requests must be application/json.")
        elif not size.isdecimal() or len(size) > 9 or int(size) > _LARGEST:
            self.close_connection = True
            self._fail(413, f"a request must say its length, at most {_LARGEST:,} bytes.")
        else:
            body = self.rfile.read(int(size))
            try:
                (call, wanted), given = calls[self.path], json.loads(body)
                told = ", ".join(f"{name} ({kind.__name__})" for name, kind in wanted.items())
                fine = isinstance(given, dict) and {k: type(v) for k, v in given.items()} == wanted
                files.require(fine, f"a request is a JSON object with {told or 'nothing in it'}.")
                with tagger.lock:
                    found = call(**given)
            except json.JSONDecodeError as error:
                self._fail(400, f"the request is no JSON: {error}.")
            except (ValueError, TypeError, RecursionError) as error:
                self._fail(400, str(error))
            except OSError as error:  # the model could not be written
                self._fail(500, f"{tagger.target}: {error.strerror}.")
            else:
                self._answer(200, json.dumps(found, allow_nan=False).encode(), "application/json")

    def _is_own(self) -> bool:
        """Refuse what another page, or another name of this machine, asks for."""
        port = self.server.server_address[1]
        hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        own = host in hosts and origin in (None, f"http://{host}")
        if not own:
            self.close_connection = True
            self._fail(403, "only this server's own page may send requests.")
        return own

    def _fail(self, code: int, sentence: str) -> None:
        self._answer(code, json.dumps({"error": sentence}).encode(), "application/json")

    def _answer(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        headers |= {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": _POLICY}
        headers |= {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing of requests that went well."""


class Server(ThreadingHTTPServer):
    """The page of one model, on this machine only."""

    daemon_threads = True

    def __init__(self, tagger: Tagger, port: int) -> None:
        self.tagger = tagger
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that went away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*_)

    @property
    def address(self) -> str:
        """What to type into the browser."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


def serve(
    model: app.Model,
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Write the model here after each correction.")
    ] = None,
) -> None:
    """Open a page to try a tagger: type text, see labels and reasons, correct them.

    Only this machine can open the page, and the page contacts no other machine. A model trained
    with --keep-state learns from corrections; the corrected sentences can be downloaded.
    """
    from hingeline.evaluation.calibration import CalibratedChain

    estimator = files.load_model(model)
    layout = files.layout_of(estimator, model)
    what = f"{model} does not label words one by one: serve is for models of columns with"
    files.require((layout.kind, layout.task) == ("tokens", "labels"), f"{what} --task labels.")
    what = f"--output: {model} holds no training state to learn from corrections"
    learns = output is None or estimator.n_examples_ > 0
    files.require(learns, f"{what}: train it with --keep-state.")
    tagger = Tagger(estimator, layout, output)
    tagger.name = Path(model).name
    if "calibration" in estimator.metadata_:
        tagger.sure = CalibratedChain.load(model)
    tagger.tag(" ".join(layout.columns))  # loads or compiles kernels before the first question
    try:
        server = Server(tagger, port)
    except OSError as error:
        how = "name another one, or 0 for any that is free"
        raise ValueError(f"--port {port}: {error.strerror}: {how}.") from None
    with server, suppress(KeyboardInterrupt):
        typer.echo(f"hingeline: {model} is at {server.address} (Ctrl-C stops it)")
        server.serve_forever()

"""The page to try a tagger: what it answers, and whom it refuses."""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

import hingeline
from browser import COMMAND, wants_browser
from cli.commands import done, refused, run
from hingeline.cli.files import layout_of
from hingeline.cli.serve import Server, Tagger
from hingeline.data.conll import read_conll
from hingeline.evaluation.calibration import CalibratedChain

WORDS = "He O\nmet O\nAnna B-PER\nin O\nRome B-LOC\n. O\n\nAnna B-PER\nlikes O\nRome B-LOC\n. O\n\n"
HOSTILE = "<script>alert(1)</script> Anna"


@pytest.fixture(scope="module")
def models(tmp_path_factory: Any) -> Any:
    """A model of words that carries its state, one of two columns that does not."""
    folder = tmp_path_factory.mktemp("serve")
    words, columns = folder / "words.conll", folder / "columns.conll"
    words.write_text(WORDS * 6)
    columns.write_text(
        "\n".join(
            f"{a} X {b}" if a else ""
            for a, _, b in (line.partition(" ") for line in (WORDS * 6).split("\n"))
        )
    )
    found = folder / "words.hinge", folder / "columns.hinge"
    done("train", words, "-m", found[0], "--keep-state", "-q")
    done("train", columns, "-m", found[1], "-q")
    return found


def open_tagger(path: Path, target: Path | None = None) -> Tagger:
    model = hingeline.load(path)
    return Tagger(model, layout_of(model, path), target)


@pytest.fixture
def server(models: Any) -> Iterator[Server]:
    with Server(open_tagger(models[0]), 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def ask(server: Server, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """The status and the text of an answer."""
    link = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    sent = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
    kind = {} if body is None else {"Content-Type": "application/json"}
    link.request(method, path, sent, {**kind, **headers})
    reply = link.getresponse()
    text = reply.read().decode()
    link.close()
    return reply.status, json.loads(text) if "json" in reply.headers["Content-Type"] else text


def test_text_is_labelled_explained_and_corrected(server: Server) -> None:
    status, found = ask(server, "POST", "/tag", {"text": "He met Anna in Rome.\nRome."})
    assert status == 200
    one, two = found["sentences"]
    assert [row[0] for row in one["rows"]] == ["He", "met", "Anna", "in", "Rome", "."]
    assert one["labels"] == ["O", "O", "B-PER", "O", "B-LOC", "O"]
    assert len(two["leads"]) == 2
    tagger = server.tagger
    leads = tagger.estimator.decision_function([[tuple(row) for row in one["rows"]]])[0]
    assert one["leads"] == pytest.approx(leads.max(axis=1))

    status, why = ask(server, "POST", "/explain", {"rows": one["rows"], "position": 2})
    assert status == 200
    assert why["nbest"][0]["labels"] == one["labels"]
    assert why["nbest"][0]["score"] >= why["nbest"][1]["score"]
    here = [row for row in why["reasons"] if row["position"] == 2]
    assert {row["chosen"] for row in here if "→" not in row["chosen"]} == {"B-PER"}
    assert sum(row["contribution"] for row in why["reasons"]) > 0.0

    before = tagger.estimator.n_examples_
    labels = ["O", "O", "B-LOC", "O", "B-PER", "O"]
    status, model = ask(server, "POST", "/correct", {"rows": one["rows"], "labels": labels})
    assert status == 200
    assert model["n_corrected"] == 1
    assert tagger.estimator.n_examples_ == before + 1
    status, text = ask(server, "GET", "/corrected.conll")
    table = read_conll(io.StringIO(text))
    assert table.sentences(0) == [["He", "met", "Anna", "in", "Rome", "."]]
    assert table.sentences(1) == [labels]


def test_a_model_without_state_keeps_corrections_but_does_not_learn(models: Any) -> None:
    tagger = open_tagger(models[1])
    found = tagger.tag("He X\nmet X\nAnna X\n")["sentences"][0]
    assert found["rows"][0] == ["He", "X"]
    weights = tagger.estimator.weights_.copy()
    facts = tagger.correct(found["rows"], ["O", "O", "O"])
    assert facts["learns"] is False
    assert facts["n_corrected"] == 1
    assert (tagger.estimator.weights_ == weights).all()
    with pytest.raises(ValueError, match="needs 2 columns per line"):
        tagger.tag("He\nmet\n")


def test_the_model_is_written_after_a_correction(models: Any, tmp_path: Path) -> None:
    target = tmp_path / "new.hinge"
    tagger = open_tagger(models[0], target)
    tagger.correct([["Rome"], ["."]], ["B-PER", "O"])
    again = hingeline.load(target)
    assert (again.weights_ == tagger.estimator.weights_).all()
    assert again.n_examples_ == tagger.estimator.n_examples_
    assert layout_of(again, target) == tagger.layout


def test_a_label_without_an_alternative_can_be_corrected(
    models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagger = open_tagger(models[0])
    predict = tagger.estimator.predict

    def refuse(X: Any, allowed: Any = None) -> Any:
        if allowed is not None:
            raise ValueError("no labels are allowed")
        return predict(X)

    monkeypatch.setattr(type(tagger.estimator), "predict", lambda self, *a, **k: refuse(*a, **k))
    why = tagger.explain([["Rome"], ["."]], 0)
    assert why["reasons"] == []
    lead = type(tagger.estimator).decision_function
    monkeypatch.setattr(
        type(tagger.estimator), "decision_function", lambda *a: [x + np.inf for x in lead(*a)]
    )
    found = tagger.tag("Rome")
    assert found["sentences"][0]["leads"] == [None]
    assert json.loads(json.dumps(found, allow_nan=False)) == found  # browsers know no Infinity
    assert len(why["nbest"]) > 1


def test_a_model_that_cannot_be_written_is_said(models: Any, tmp_path: Path) -> None:
    tagger = open_tagger(models[0], tmp_path / "missing" / "new.hinge")
    with Server(tagger, 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        status, answer = ask(server, "POST", "/correct", {"rows": [["Rome"]], "labels": ["O"]})
        server.shutdown()
    assert status == 500
    assert "new.hinge" in answer["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/", None, {"Host": "evil.example"}, 403),
        ("POST", "/tag", {"text": "x"}, {"Origin": "http://evil.example"}, 403),
        ("POST", "/tag", {"text": "x"}, {"Origin": "null"}, 403),
        ("POST", "/tag", {"text": "x"}, {"Content-Type": "text/plain"}, 415),
        ("POST", "/tag", "{", {}, 400),
        ("POST", "/tag", [], {}, 400),
        ("POST", "/tag", {"texts": 1}, {}, 400),
        ("POST", "/tag", {"text": 3}, {}, 400),
        ("POST", "/tag", "[" * 100_000, {}, 400),
        ("POST", "/explain", {"rows": [], "position": 0}, {}, 400),
        ("POST", "/explain", {"rows": [["a", "b"]], "position": 0}, {}, 400),
        ("POST", "/explain", {"rows": [["a"]], "position": 1}, {}, 400),
        ("POST", "/explain", {"rows": [["a"]], "position": True}, {}, 400),
        ("POST", "/model", {"text": "x"}, {}, 400),
        ("POST", "/correct", {"rows": [["a"]], "labels": []}, {}, 400),
        ("POST", "/correct", {"rows": [["a"]], "labels": ["x\ny"]}, {}, 400),
        ("POST", "/tag", {"text": "x" * 2_000_000}, {}, 413),
        ("POST", "/nowhere", {}, {}, 404),
        ("GET", "/../etc/passwd", None, {}, 404),
    ],
)
def test_others_and_bad_requests_are_refused(
    server: Server, method: str, path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    try:
        found, answer = ask(server, method, path, body, **headers)
    except (BrokenPipeError, ConnectionResetError):  # it hung up before all was sent
        assert status == 413
        return
    assert found == status
    assert answer["error"].endswith(".") or body == "[" * 100_000
    python = ("Tagger", "initial_value", "truth value")  # of its own errors
    assert not any(word in answer["error"] for word in python)
    assert ask(server, "POST", "/tag", {"text": "Anna"})[0] == 200


def test_the_page_asks_nothing_of_others() -> None:
    page = package_files("hingeline.cli").joinpath("serve.html").read_text()
    for word in ("http:", "https:", "//cdn", "innerHTML", "insertAdjacent", "eval(", "@import"):
        assert word not in page


def test_the_command_refuses_what_it_cannot_show(models: Any, tmp_path: Path) -> None:
    rows = tmp_path / "rows.svm"
    rows.write_text("1 1:1\n2 2:1\n" * 5)
    done("train", rows, "-m", tmp_path / "rows.hinge", "-q")
    assert "does not label words" in refused("serve", tmp_path / "rows.hinge")
    assert "--keep-state" in refused("serve", models[1], "-o", tmp_path / "new.hinge")


def test_a_port_that_is_taken_is_named(models: Any, server: Server) -> None:
    port = server.server_address[1]
    said = refused("serve", models[0], "--port", port)
    assert said.startswith(f"--port {port}: Address already in use: name another one")


def test_ctrl_c_ends_the_page_without_complaint(models: Any, monkeypatch: Any) -> None:
    def interrupt(server: Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupt)
    result = run("serve", models[0], "--port", "0")
    assert result.exit_code == 0
    assert "interrupted" not in result.stderr


def test_a_calibrated_model_says_how_likely_its_labels_are_right(
    models: Any, tmp_path: Any
) -> None:
    held_out = tmp_path / "held_out.conll"
    held_out.write_text(WORDS * 10)
    done("calibrate", models[0], held_out, "-m", tmp_path / "m.hinge")
    tagger = open_tagger(models[0])
    tagger.sure = CalibratedChain.load(tmp_path / "m.hinge")
    (sentence,) = tagger.tag("He met Anna")["sentences"]
    assert len(sentence["probabilities"]) == 3
    assert all(0.5 < p <= 1 for p in sentence["probabilities"])
    tagger.correct(sentence["rows"], ["O", "O", "B-LOC"])  # another model from now on
    assert "probabilities" not in tagger.tag("He met Anna")["sentences"][0]


@pytest.mark.slow
@wants_browser
def test_a_browser_shows_labels_and_no_script_of_the_text(server: Server, tmp_path: Path) -> None:
    command = [*COMMAND, "--dump-dom", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=8000"]
    address = f"{server.address}?text={quote(HOSTILE)}"
    done = subprocess.run([*command, address], capture_output=True, text=True, timeout=120)
    assert "<b>B-PER</b>" in done.stdout
    assert "&lt;" in done.stdout
    assert "<script>alert" not in done.stdout
    assert "CONSOLE" not in done.stderr  # nothing is blocked or wrong


class Browser:
    """Chromium with one page, told what to do through a pipe."""

    def __init__(self, folder: Path) -> None:
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        command = [*COMMAND, "about:blank", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        # The pipes are its files 3 and 4, whatever their numbers are here.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest, self._number, self.asked = b"", 0, set[str]()
        self._session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": found["sessionId"]}
        self.call("Network.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                more = os.read(self._in, 65536)
                assert more, "Chromium is gone"
                self._rest += more
            line, _, self._rest = self._rest.partition(b"\0")
            told = json.loads(line)
            if told.get("method") == "Network.requestWillBeSent":
                self.asked.add(urlsplit(told["params"]["request"]["url"]).netloc)
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]

    def run(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get(
            "value"
        )

    def wait_for(self, script: str) -> Any:
        for _ in range(300):
            found = self.run(script)
            if found:
                return found
            time.sleep(0.05)
        pytest.fail(f"never true: {script}: {self.run('document.body.innerText')}")

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "char" else {}
            known = {"key": key, "code": key, "windowsVirtualKeyCode": code, **text}
            if kind != "char" or text:
                self.call("Input.dispatchKeyEvent", type=kind, **known)

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)
        self._process.kill()
        self._process.wait()


@pytest.mark.slow
@wants_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_reader_with_a_keyboard(server: Server, tmp_path: Path, width: int) -> None:
    """From text to labels, to why, to a correction that is learnt from, to a file of it."""
    browser = Browser(tmp_path)
    try:
        sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.call("Emulation.setDeviceMetricsOverride", **sizes)
        browser.call("Emulation.setFocusEmulationEnabled", enabled=True)  # else keys may be lost
        browser.call("Page.navigate", url=server.address)
        browser.wait_for("document.readyState == 'complete' && !!document.getElementById('go')")
        browser.run("document.getElementById('text').focus()")
        browser.call("Input.insertText", text=f"Anna met Oslo\n{'long' * 30}")
        browser.wait_for("document.getElementById('text').value.startsWith('Anna')")
        browser.press("Tab", 9)
        browser.press("Enter", 13)  # on "Label it"
        word = "[...document.querySelectorAll('.token')].find(b => b.innerText.startsWith('Oslo'))"
        browser.wait_for(f"!!{word}")
        for _ in range(3):
            browser.press("Tab", 9)
        assert browser.run(f"document.activeElement == {word}")
        browser.press("Enter", 13)
        panel = "document.getElementById('panel').innerText"
        browser.wait_for(f"{panel}.includes('leads the next best one by')")
        assert browser.run(f"{panel}.includes('The best labellings')")
        # A phone widens its window to what does not fit.
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.activeElement.id == 'label'")
        browser.run("document.activeElement.select()")
        browser.call("Input.insertText", text="B-LOC")
        browser.press("Tab", 9)
        browser.press("Enter", 13)  # on "Use this label"
        browser.wait_for(f"{word}.innerText.includes('B-LOC')")
        browser.run("[...document.querySelectorAll('#panel button.main')][0].click()")
        browser.wait_for("document.body.innerText.includes('Kept, and learnt.')")
        assert browser.run("!document.getElementById('keep').hidden")
        browser.run("document.querySelector('.token').click()")
        browser.wait_for("!document.getElementById('panel').hidden")
        browser.press("Escape", 27)
        browser.wait_for("document.getElementById('panel').hidden")
        # Who closes the panel is back at the word.
        assert browser.run("document.activeElement == document.querySelector('.token')")
    finally:
        browser.close()
    assert browser.asked == {urlsplit(server.address).netloc}
    assert "Oslo B-LOC" in server.tagger.download().replace("\t", " ")


def test_corrections_that_no_file_could_hold_are_not_learnt(models: Any, tmp_path: Path) -> None:
    """One such word had kept the model and all later corrections from being written."""
    tagger = open_tagger(models[0], tmp_path / "m.hinge")
    before = tagger.estimator.weights_.copy()
    for word in ("a\tb c", "a\nb", "\ud800"):
        with pytest.raises(ValueError):
            tagger.correct([[word]], ["O"])
    with pytest.raises(ValueError):
        tagger.correct([["Anna"]], ["\u00a0"])
    assert (tagger.estimator.weights_ == before).all()
    assert not tagger.corrected
    tagger.correct([["Anna"]], ["B-PER"])
    assert tagger.download() == "Anna B-PER\n\n"
    assert hingeline.load(tmp_path / "m.hinge").n_examples_ == tagger.estimator.n_examples_


def test_clients_that_go_away_leave_no_trace(server: Server, capsys: Any) -> None:
    address = server.server_address[:2]
    start = f"POST /tag HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nContent-Type: application/json"
    for length in ("500", "9" * 5000):
        with socket.create_connection(address, timeout=20) as link:
            link.sendall(f"{start}\r\nContent-Length: {length}\r\n\r\n".encode() + b'{"te')
            if len(length) > 3:
                assert link.recv(100).startswith(b"HTTP/1.0 413")
            else:  # reset, not closed
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ask(server, "POST", "/model", {})[0] == 200
    assert capsys.readouterr().err == ""

"""The commands on the pages run, page by page, on small files of the names that they use."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from cli.commands import conll, run, sentences, write
from cli.test_dependencies import treebank
from marks import slow

ROOT = Path(__file__).resolve().parent.parent
PAGES = {page.stem: page for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}
#: Blocks of pages and what is in the text; headings and prose follow "hingeline" with no argument.
BLOCK = re.compile(r"^```(?:\{code-block\} )?(\w*)\n(.*?)^```$|`(hingeline [^`\n]+)`", re.S | re.M)

#: Commands that are not run here, and why; what is left is.
NOT_RUN = {
    r"hingeline serve": "serves until it is stopped; tests/cli/test_serve.py starts and stops it",
    r"hingeline warm-up": "compiles for minutes; tests/cli/test_warm_up.py runs it on one kernel",
    r"hingeline demo": "what every landing runs (.ci/run); tests/cli/test_demo.py",
    r".*--workers (tcp:|\$)": "wants a cluster; tests/distributed has one on this machine",
    r"hingeline (train|predict M) '(part|new)-\*'": "on the cheat sheet; distributed.md's run",
    r"hingeline [a-z-]+( --[a-z]+)?$": "names a command, or an option of it, and no file",
}
#: What stands for a name of the reader's own.
MEANT = {
    "FILE": "train.conll",
    "TRAIN": "train.conll",
    "LABELLED": "few.conll",
    "M": "m.hinge",
    "N": "n.hinge",
    "U": "text.conll",
    "C": "rules.toml",
    "IN": "train.conll",
    "OUT": "out.jsonl",
    "DIR": "labelled",
}
#: What the dots of a command leave out.
DOTS = {"semi": "--constraints rules.toml -m s.hinge", "train": "train.conll -m m.hinge --tol 0.3"}
#: Commands of a reader who comes to a page with a model.
BEFORE = {
    "graphs": ["hingeline train train.arff -m model.hinge --edges tree"],
    "formats": ["hingeline train words.conll -m model.hinge"],
    "distributed": ["hingeline train train.conll -m m.hinge"],
}
RULES = """
[defaults]
weight = 10

[[words]]
words = ["Rome", "Oslo"]
label = "B-LOC"
"""
LABELS = "".join(f'<label name="Class{k}"></label>' for k in (1, 2, 3))
LABELS = f"<labels>{LABELS}</labels>\n"
CITATION = [
    (word, label)
    for label, words in (
        ("author", "A . Berg ."),
        ("title", "Fast trees ."),
        ("journal", "Journal of Words ,"),
        ("pages", "pages 3 - 9 ,"),
        ("date", "1999 ."),
    )
    for word in words.split()
]


def arff(n: int, seed: int) -> str:
    """Three features, and two sets of labels that go with them."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n, 3))
    table = np.column_stack([X, X[:, :2], 1 - X[:, 0]])
    kinds = [f"@attribute x{k} numeric" for k in range(3)]
    kinds += [f"@attribute Class{k} {{0,1}}" for k in (1, 2, 3)]
    return "\n".join(["@relation r", *kinds, "@data", *(",".join(map(str, r)) for r in table), ""])


def numbered(n: int) -> str:
    """Sequences of numbered features, as SVM^hmm reads them."""
    rows = [(1 + (k + t) % 2, k) for k in range(n) for t in range(4)]
    return "".join(f"{tag} qid:{k} {tag}:1 3:{k}\n" for tag, k in rows)


def sample(page: str, beginning: str) -> str:
    """The block of a page that begins so: what it shows of a file."""
    text = PAGES[page].read_text(encoding="utf-8")
    return re.findall(rf"^```\n({re.escape(beginning)}.*?)^```$", text, re.S | re.M)[0]


def make_files(folder: Path) -> None:
    """Small files of all names that the pages use, and of what these are read as."""
    tagged = {"train": 40, "test": 15, "first": 30, "more": 10, "few": 6}
    for seed, (name, n) in enumerate(tagged.items()):
        write(folder / f"{name}.conll", conll(sentences(n, seed), 0, 1, 2))
    for name in ("esp.train.gz", "esp.testa", "esp.testa.gz", "esp.testb.gz", "train.txt.gz"):
        write(folder / name, conll(sentences(30, len(name)), 0, 1, 2))
    for k in range(2):
        write(folder / f"part-{k}.conll", conll(sentences(20, k), 0, 1, 2))
        write(folder / f"new-{k}.conll.gz", conll(sentences(5, k), 0, 1))
    write(folder / "new.conll", conll(sentences(8, 9), 0, 1))
    write(folder / "words.conll", conll(sentences(30, 3), 0, 2))
    write(folder / "text.conll", conll(sentences(20, 4), 0, 1))
    write(folder / "notes.txt", "Ann ran to Oslo.\nBob sat.\n")
    write(folder / "cities.txt", "Rome\nOslo\n")
    write(folder / "rules.toml", RULES)
    write(folder / "template", sample("tagging", "U00"))
    write(folder / "small.conll", sample("formats", "La DA"))
    write(folder / "trees.mrg", sample("formats", "( (S"))
    for name, seed in (("en_ewt-ud-train", 0), ("en_ewt-ud-test", 1), ("new", 2)):
        write(folder / f"{name}.conllu", treebank(12, seed))
    for name, seed in (("train.arff", 0), ("test.arff", 1), ("yeast-train.arff.gz", 2)):
        write(folder / name, arff(40, seed))
    write(folder / "yeast-test.arff.gz", arff(20, 3))
    for name in ("train.xml", "yeast.xml"):
        write(folder / name, LABELS)
    write(folder / "few.tsv", conll([CITATION] * 3, 0, 1))
    write(folder / "citations_test.tsv.gz", conll([CITATION] * 2, 0, 1))
    write(folder / "citations_unlabelled.txt.gz", conll([CITATION[2:], CITATION[:9]] * 2, 0))
    write(folder / "names.txt", DUMP)
    for name, n in (("train", 40), ("test", 10)):
        write(folder / f"{name}.dat", numbered(n))


DUMP = """FILEHEADER = {
  magic: lCRF
  size: 1
  type: FOMC
  version: 100
  num_features: 0
  num_labels: 2
  num_attrs: 1
  off_features: 0x30
  off_labels: 0x0
  off_attrs: 0x0
  off_labelrefs: 0x0
  off_attrrefs: 0x0
}

LABELS = {
      0: B
      1: A
}

ATTRIBUTES = {
      0: word:x
}

TRANSITIONS = {
  (1) B --> A: 0.500000
}

STATE_FEATURES = {
  (0) word:x --> B: 1.000000
}

"""


def find_commands(page: str) -> list[tuple[str, list[str]]]:
    """Commands of a page in their order, and the lines that it shows below each."""
    found: list[tuple[str, list[str]]] = []
    for kind, block, inline in BLOCK.findall(PAGES[page].read_text(encoding="utf-8")):
        if inline:
            found.append((inline, []))
        if kind in ("", "console", "bash", "text"):
            prompts = re.search(r"^\$ ", block, re.M)
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("$ " if prompts else "hingeline "):
                    found.append((line.removeprefix("$ "), []))
                elif prompts and found:
                    found[-1][1].append(line)
    return [(re.split(r"\s+#\s", command)[0].strip(), shown) for command, shown in found]


def why_not_run(command: str) -> str | None:
    return next((why for form, why in NOT_RUN.items() if re.match(form, command)), None)


def run_line(line: str) -> str:
    """What a command of a page prints; ``head`` and pipes are those of a shell."""
    printed = None
    for part in line.split(" | "):
        program, *words = shlex.split(re.sub(r" \[[^]]*\]", "", part))
        if program == "head":
            text = Path(words[1]).read_text(encoding="utf-8") if words[1:] else printed
            printed = "".join(itertools.islice(text.splitlines(keepends=True), -int(words[0])))
            continue
        assert program == "hingeline", line
        if "…" in words:
            at = words.index("…")
            words[at : at + 1] = DOTS[words[0]].split()
        meant = MEANT | {"FILE": "names.txt"} if words[0] == "import" else MEANT
        words = [meant.get(word, word) for word in words]
        if "--workers" in words:
            words[words.index("--workers") + 1] = "2"  # each is a process that starts from nothing
        result = run(*words, input=printed)
        # Rules that are broken, of which a page may tell, are 1.
        assert result.exit_code in ((0, 1) if words[0] == "check" else (0,)), result.output
        printed = result.stdout
    return printed or ""


#: Pages whose commands compile what no other test wants, or start processes.
SLOW = {
    "tagging",
    "segments",
    "dependencies",
    "distributed",
    "cheat_sheet",
    "semisupervised",
    "nu",
    "summed",
}
WITH = [page for page in sorted(PAGES) if any(not why_not_run(c) for c, _ in find_commands(page))]


@pytest.mark.parametrize("page", [slow(page) if page in SLOW else page for page in WITH])
def test_the_commands_on_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_files(tmp_path)
    for command in BEFORE.get(page, []):
        run_line(command)
    for command, shown in find_commands(page):
        if why_not_run(command):
            continue
        printed = run_line(command)
        if page == "formats" and ("convert" in command or "small." in command):
            assert printed.split("\n")[: len(shown)] == shown, command  # made from its samples


def test_what_is_not_run_has_a_reason_that_is_used():
    commands = [command for page in PAGES for command, _ in find_commands(page)]
    for form in NOT_RUN:
        assert any(re.match(form, command) for command in commands), form
    assert sum(why_not_run(command) is None for command in commands) > 50

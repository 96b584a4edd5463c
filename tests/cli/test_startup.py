"""What the command line leaves out at its start, and that it is there when asked for."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib import import_module

import pytest

import hingeline
from hingeline.cli import import_later
from marks import slow

pytestmark = pytest.mark.subprocess

SLOW = ("scipy.stats", "pandas", "matplotlib", "sklearn.datasets", "sklearn.linear_model")


@cache
def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_command_line_starts_without_what_it_does_not_need():
    loaded = run(
        "import sys, hingeline.cli.train, hingeline.cli.predict\n"
        "print(*[n for n, m in sys.modules.items() if vars(m).get('__spec__')], sep='\\n')"
    ).splitlines()
    assert "hingeline.cli.app" in loaded
    assert not set(SLOW) & set(loaded)
    assert "hingeline.report" not in loaded


def ask_for_help(*arguments: str) -> list[str]:
    """The modules that are loaded then."""
    return run(
        "import sys\n"
        "from hingeline.cli.app import app\n"
        f"try:\n    app({arguments})\nexcept SystemExit:\n    pass\n"
        "print('', *[n for n, m in sys.modules.items() if vars(m).get('__spec__')], sep='\\n')"
    ).splitlines()


def test_a_command_imports_no_other_command():
    loaded = ask_for_help("predict", "--help")
    assert "hingeline.cli.predict" in loaded
    others = ("cli.train", "cli.fits", "cli.evaluate", "estimators", "solvers", "evaluation")
    assert not [name for name in loaded if name.startswith(tuple(f"hingeline.{o}" for o in others))]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["predict", "--help"]])
def test_help_takes_no_time(arguments):
    """NumPy, SciPy, scikit-learn and numba take a second of processor time to import."""
    loaded = ask_for_help(*arguments)
    assert "hingeline.cli.train" in loaded or "hingeline.cli.predict" in loaded
    assert not {"numpy", "scipy", "sklearn", "numba", "hingeline._checks"} & set(loaded)


@pytest.mark.parametrize(
    "use",
    [
        slow("import scipy.stats; print(scipy.stats.norm.cdf(0.0))"),
        slow("from scipy.stats import norm; print(norm.cdf(0.0))"),
        slow("import scipy; print(scipy.stats.norm.cdf(0.0))"),
        slow(
            "from scipy.stats._distn_infrastructure import rv_frozen; import scipy.stats\n"
            "print(scipy.stats.norm.cdf(0.0))"
        ),
        "import scipy.stats as before; before.norm; import scipy.stats as after\n"
        "print(after.norm.cdf(0.0) if before.norm is after.norm else 'two copies')",
        slow("import sklearn.linear_model, scipy.stats; print(scipy.stats.norm.cdf(0.0))"),
    ],
)
def test_what_was_left_out_is_there_when_it_is_used(use):
    assert run(f"import hingeline.cli\n{use}") == "0.5"


def test_frames_are_seen_as_frames():
    pytest.importorskip("pandas")
    code = (
        "import hingeline.cli, pandas, numpy\n"
        "from sklearn.utils.validation import check_array\n"
        "print(check_array(pandas.DataFrame({'a': [1.0, 2.0]})).sum())"
    )
    assert run(code) == "3.0"


def test_what_is_not_installed_stays_missing():
    import_later("no_such_module")
    with pytest.raises(ImportError):
        import_module("no_such_module")


def test_the_package_offers_its_modules_without_an_import():
    assert run("import hingeline; print(hingeline.data.read_conll.__name__)") == "read_conll"
    deep = "hingeline.evaluation.inspection.explain, hingeline.modelfile.foreign.import_crfsuite"
    assert "function explain" in run(f"import hingeline; print({deep})")
    with pytest.raises(AttributeError, match="'hingeline' has no attribute 'ChainSVM'") as told:
        hingeline.ChainSVM  # noqa: B018
    assert (told.value.name, told.value.obj) == ("ChainSVM", hingeline)  # Did you mean ChainSSVM?

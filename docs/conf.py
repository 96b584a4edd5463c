"""The documentation site: ``python -m sphinx -W docs build/site``."""

import warnings
from importlib import metadata
from pathlib import Path

from docutils import nodes
from numpydoc.xref import DEFAULT_LINKS
from sphinx_gallery.sorting import ExplicitOrder

import hingeline
from hingeline import baselines, constraints, data, distributed, features

warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

project = "Hingeline"
author = copyright = "The Hingeline developers"
version = release = metadata.version("hingeline")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.py", "gallery/*.zip"]
suppress_warnings = ["config.cache", "ref.python"]  # classes have methods of the same name

# Markdown
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# The reference, from the docstrings
autosummary_generate = True
templates_path = ["_templates"]  # the methods of a class, below its docstring
numpydoc_class_members_toctree = False
numpydoc_show_inherited_class_members = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"  # fit(), not ChainSSVM.fit()

# The gallery, from the examples, which are run: what most people come for is
# first, what is not in the list last
ORDER = [
    *("tagging", "feature_dicts", "segments", "chain_dates"),
    *("confidence", "explanation", "error_analysis", "constraints"),
    *("semisupervised", "online", "multiclass_digits", "cost_matrix"),
    *("taxonomy", "multilabel", "segmentation", "dependencies"),
    *("more_than_one_machine", "paths", "nu_ocr", "summed_errors", "own_structure"),
]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "parallel": 2,  # examples at a time
    "download_all_examples": False,
    "write_computation_times": False,  # its page loads scripts from elsewhere
    "show_memory": False,
    "within_subsection_order": ExplicitOrder([*(f"{name}.py" for name in ORDER), "*"]),
    "ignore_repr_types": "matplotlib",  # the picture is enough
    "remove_config_comments": True,
    "doc_module": ("hingeline",),
    "backreferences_dir": "generated/backreferences",
}

# Links to the pages of other projects. Their addresses follow from the names, so a build without a
# network makes the same site; ``sphinx -b linkcheck`` tells whether they lead somewhere.
PAGES_OF = {
    "sklearn": "https://scikit-learn.org/stable/modules/generated/{}.html",
    "numpy": "https://numpy.org/doc/stable/reference/generated/{}.html",
}
OTHER_PAGES = {
    "numpy.typing.ArrayLike": "https://numpy.org/doc/stable/glossary.html#term-array_like",
    "numpy.random.RandomState": "https://numpy.org/doc/stable/reference/random/legacy.html"
    "#numpy.random.RandomState",
    "scipy.sparse": "https://docs.scipy.org/doc/scipy/reference/sparse.html",
    # A place that docstrings inherited from scikit-learn refer to.
    "accuracy_score": "https://scikit-learn.org/stable/modules/model_evaluation.html#accuracy-score",
}

# Words of the types in docstrings that are links: numpy's, and our own classes.
PUBLIC = (hingeline, features, data, constraints, distributed, baselines)
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"  # of other words
numpydoc_xref_aliases = {
    **{name: name for name in DEFAULT_LINKS},  # Python's types are no links
    "ndarray": "numpy.ndarray",
    "array-like": "numpy.typing.ArrayLike",
    "sparse": "scipy.sparse",
    "RandomState": "numpy.random.RandomState",
    **{
        name: f"{module.__name__}.{name}"
        for module in PUBLIC
        for name in module.__all__
        if isinstance(getattr(module, name), type)
    },
}


def link_elsewhere(app, env, node, content):
    """A link to a name of another project."""
    name = node.get("reftarget", "")
    address = OTHER_PAGES.get(name) or PAGES_OF.get(name.partition(".")[0], "").format(name)
    if not address:
        return None
    return nodes.reference("", "", content, refuri=address, internal=False, reftitle=name)


def show_gallery(app, what, name, thing, options, lines):
    """Below the docstring of a class or function: the examples of the gallery that use it."""
    found = Path(app.srcdir, "generated", "backreferences", f"{name}.examples")
    if what in ("class", "function") and found.exists() and "thumbcontainer" in found.read_text():
        lines += ["", ".. rubric:: In the gallery", "", f".. minigallery:: {name}", ""]


def setup(app):
    """Sphinx calls this."""
    app.connect("missing-reference", link_elsewhere)
    app.connect("autodoc-process-docstring", show_gallery, priority=900)  # after numpydoc


copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "Hingeline"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_nav_level": 1,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

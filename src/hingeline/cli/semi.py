"""``hingeline semi``: few labels, text without labels, and constraints on it."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import hingeline
from hingeline._words import count_of
from hingeline.cli import app, files, fits
from hingeline.cli.app import blame, check_sources, check_target, split_numbers
from hingeline.cli.check import read_constraints
from hingeline.cli.info import WHY_NO_GAP, choice_text


def semi(
    data: app.Data,
    model: app.NewModel,
    unlabelled: Annotated[list[str], Option(help="Unlabelled text; can be repeated.")],
    constraints: app.Constraints = None,
    dev: Annotated[str | None, Option(help="A held-out file for choosing a step.")] = None,
    unlabelled_C: app.UnlabelledCost = None,
    select: app.Select = None,
    format: app.Format = "auto",
    template: app.Template = None,
    columns: app.Columns = None,
    use: app.Use = None,
    label: app.Label = None,
    min_count: app.MinCount = None,
    hash_bits: app.HashBits = None,
    C: app.Cost = None,
    tol: app.Tol = 0.05,
    scheme: app.Scheme = None,
    max_iter: app.MaxIter = 1000,
    dtype: app.Dtype = "float64",
    sparse: app.Sparse = True,
    n_jobs: app.NJobs = None,
    seed: app.Seed = 0,
    quiet: app.Quiet = False,
    as_json: app.Json = False,
) -> None:
    """Learn from few labels, from text without labels, and from constraints on that text.

    The text is labelled during training so that it obeys the constraints, and counts more with
    every step. The score on --dev, or the violations that remain, decide which step to keep. Ctrl-C
    ends the training early and keeps the best step so far. Files must have words in columns.
    """
    from hingeline._checks import positive, require
    from hingeline.features.tables import TokenTable

    check_sources("--unlabelled", data, dev, *unlabelled)
    check_target("--model", model, data, dev, *unlabelled)
    what = "--select dev chooses by the score on held-out data: pass --dev FILE."
    require(dev or select != "dev", what)
    rule = select or ("violations" if dev is None else "dev")
    what = "without --constraints there are no violations to choose a step by"
    fine = constraints is not None or rule != "violations"
    require(fine, f"{what}: pass --constraints FILE or --dev FILE.")
    require(C != "auto", "--C: auto works only in train: give a number, or scale.")
    file = files.open_training(data, format, ["unlabelled"])
    features = fits.make_encoder(file.format.name, "labels", template, min_count, hash_bits)
    params: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "scheme": scheme}
    params |= {"features": features, "n_jobs": n_jobs, "random_state": seed}
    params["verbose"] = 0  # the steps are told, not the fits in them
    base = hingeline.ChainSSVM(fits.parse_number(C or "scale", float), **params)
    C_u = None
    if unlabelled_C is not None:
        C_u = split_numbers(unlabelled_C, "--unlabelled-C: expected 0.01,0.1,1")
        positive("--unlabelled-C", C_u[0])  # the smallest
    estimator = hingeline.SemiSupervisedSSVM(base, C_u=C_u, select=select, random_state=seed)
    with blame(""):
        estimator.check_parameters(None if dev is None else (None, None))
    progress = fits.FitProgress(quiet or as_json)
    samples = progress.read(file, features, columns, use, label, scheme, "labels")
    layout = samples.layout
    with progress.during(", ".join(unlabelled), "reading"):
        others = [files.read_like(files.open_like(n, layout), layout, None) for n in unlabelled]
    for name, other in zip(unlabelled, others, strict=True):
        note = "unlabelled" if other.y is None else "its labels are not read"
        progress.say(f"{name}: {other.size_text()} ({note})")
    known: list[Any] = []
    unknown: list[str] = []
    counts = Counter(label for labels in samples.y for label in labels)
    if constraints is not None:
        known, unknown = read_constraints(constraints, samples.y, counts, data, progress.say)
        progress.say(f"{constraints}: {count_of(len(known), 'constraint')}")
    held_out = files.read_held_out(dev, layout, None)
    progress.end_phase("read")
    estimator.set_params(constraints=known, verbose=0 if progress.quiet else 1)
    words = TokenTable.join([part.X for part in (samples, *others)])
    y = [*samples.y, *[None] * (len(words) - len(samples.y))]
    with blame(data), progress.show_warnings():
        warnings.filterwarnings("ignore", "constraints name labels")  # said before, by file
        estimator.fit(words, y, dev=None if held_out is None else (held_out.X, held_out.y))
    progress.end_phase("train")
    tried = [step.C_u for step in estimator.steps_]
    progress.say(f"chosen: {choice_text(tried, estimator.selected_, rule)}")
    text: dict[str, Any] = {"sequences": sum(other.n_sequences for other in others)}
    text["tokens"] = sum(other.n_tokens for other in others)
    text["files"] = [Path(name).name for name in unlabelled]
    rules: dict[str, Any] = {} if constraints is None else files.source_of(constraints)
    rules["titles"] = [constraint.title for constraint in known]
    metadata = {"unlabelled": text, "constraints": rules, "select": rule}
    more = {"label_counts": dict(counts)} | ({"dev": files.source_of(dev)} if dev else {})
    facts = layout, [*map(files.source_of, (data, *unlabelled))], metadata | more
    written = fits.write_model(model, estimator, progress, *facts, dtype=dtype, sparse=sparse)
    if constraints is not None:
        progress.say(f"hingeline predict {model} FILE obeys them; --constraints none does not")
    found = fits.outcome_of(estimator.base_) | {"relative_gap": None, "restricted_gap": None}
    if estimator.stop_reason_ == "interrupted":
        found["stop_reason"] = "interrupted"
    found |= {"C_u": tried[estimator.selected_], "why_no_gap": WHY_NO_GAP, **metadata}
    found |= {"unknown_labels": unknown, "selected": estimator.selected_}
    found["steps"] = fits.list_rows(estimator.steps_)
    fits.print_result({**written, **found}, as_json)

"""``hingeline import``: models of other tools."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from hingeline.cli import app, files
from hingeline.cli.app import check_target

Origin = StrEnum("Origin", ["crfsuite", "liblinear"])


def import_model(
    origin: Annotated[Origin, Argument(metavar="TOOL", help="crfsuite or liblinear.")],
    file: Annotated[Path, Argument(metavar="FILE", help="`crfsuite dump`, or LIBLINEAR's model.")],
    model: app.NewModel,
) -> None:
    """Import a CRFsuite or LIBLINEAR model; its predictions stay the same."""
    from hingeline.modelfile.foreign import import_crfsuite, import_liblinear

    check_target("--model", model, str(file))
    named, layout = origin is Origin.crfsuite, files.Layout("crfsuite", "sequences")
    layout = layout if named else files.Layout("svmlight", "flat", zero_based=False)
    estimator: Any = import_crfsuite(file) if named else import_liblinear(file)
    estimator.save(model, metadata={"layout": asdict(layout), "imported": file.name})
    typer.echo(f"{model}: {len(estimator.classes_)} labels, {estimator.n_features_in_:,} features")

"""Upload of a sweep's page and figures to Weights & Biases, as an artifact of a separate W&B run."""

import contextlib
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

from results.figures import kinds as figures
from results.figures.groups import file_stem, groups
from results.figures.saving import save_all
from results.read.folders import finished_runs
from results.report.html_page import Report, render

KIND = "report"  # of the artifact, and the job type of its run


def upload(entity: str, project: str, folders: Sequence[Path]) -> str | None:
    """Draw all figures of the runs in ``folders``, make their page, upload both; return the run's address.

    Raises ``OSError`` and ``ValueError`` for unreadable runs, and the exceptions of W&B.
    """
    import wandb

    runs = finished_runs(folders)
    name = file_stem("-".join(folder.resolve().name for folder in folders))  # blanks are refused
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as own:
        place = Path(made)
        page = render(Report.of(runs, folders))
        (place / "report.html").write_text(page, encoding="utf-8", errors="replace")
        with contextlib.redirect_stdout(io.StringIO()):  # save_all prints the files' paths
            drawn = figures.figures_of(groups(runs), list(figures.FIGURES))
            save_all(drawn, place / "figures", pdf=True)
        quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        run = wandb.init(
            entity=entity,
            project=project,
            job_type=KIND,
            name=f"{KIND}-{name}",
            mode="online",
            dir=own,
            settings=quiet,
        )
        artifact = wandb.Artifact(f"{KIND}-{name}", type=KIND, metadata={"runs": [one.id for one in runs]})
        artifact.add_dir(str(place), skip_cache=True)
        run.log_artifact(artifact)
        address = run.url
        run.finish()
    return address

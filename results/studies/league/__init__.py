"""All methods at equal bytes on four tasks, each with tuned settings and learning rate."""

from results.studies.kit import Option, Study
from results.studies.league.page import page
from results.studies.league.tasks import TASKS
from results.studies.league.training import TRAINING
from results.studies.league.trials import PREFIX, TUNING

STUDY = Study(
    name="league",
    question="Which method is best at the same number of bytes?",
    page=page,
    keeps=lambda run: str(run.config["name"]).startswith(PREFIX),
    option=Option(
        name="--tuning", help="folder with the runs of pilots and of the rates tried", output=TUNING
    ),
    curves=("time/", *(task.quality for task in TASKS.values())),
    train=TRAINING,
)

__all__ = ["STUDY"]

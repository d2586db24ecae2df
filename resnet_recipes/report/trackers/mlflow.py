"""MLflow, at MLFLOW_TRACKING_URI, or in the folder mlruns next to the run folders."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from resnet_recipes.base import atomic
from resnet_recipes.report.trackers.base import format_setting, make_tags

#: Entries that MLflow accepts in one call.
_MAX_PARAMS_PER_CALL = 100


class MlflowTracker:
    """One MLflow run per run folder, continued when the run is resumed.

    Its id is in RUN/mlflow-run. MLflow keeps every point that it receives, so points that a resumed
    run repeats are not sent again.
    """

    def __init__(self, folder: Path):
        self._folder = folder.resolve()
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = MlflowClient(
            os.environ.get("MLFLOW_TRACKING_URI") or (self._folder.parent / "mlruns").as_uri()
        )
        self._run = ""
        self._sent: dict[str, int] = {}  # the last step of each curve, by name

    def begin(self, settings: Mapping[str, object], step: int) -> None:
        id_file = self._folder / "mlflow-run"
        if id_file.is_file():
            self._run = id_file.read_text().strip()
            self._client.update_run(self._run, status="RUNNING")
            self._sent = {
                name: max(point.step for point in self._client.get_metric_history(self._run, name))
                for name in self._client.get_run(self._run).data.metrics
            }
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "resnet-recipes")
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        tags = make_tags(self._folder)
        run_name = self._folder.name
        self._run = self._client.create_run(number, tags=tags, run_name=run_name).info.run_id
        atomic.write_text(id_file, self._run)
        params = [Param(key, format_setting(value)[:500]) for key, value in settings.items()]
        for start in range(0, len(params), _MAX_PARAMS_PER_CALL):
            self._client.log_batch(self._run, params=params[start : start + _MAX_PARAMS_PER_CALL])

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self._client.log_batch(
            self._run,
            [
                Metric(name, float(value), now, step)
                for name, value in values.items()
                if step > self._sent.get(name, -1)
            ],
        )

    def close(self, is_finished: bool) -> None:
        self._client.set_tag(self._run, "state", "finished" if is_finished else "stopped")
        self._client.set_terminated(self._run, "FINISHED" if is_finished else "KILLED")

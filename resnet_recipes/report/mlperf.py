"""The MLPerf log of a run, in the format of mlperf-logging's compliance checker."""

import json
from collections.abc import Iterator, Mapping, Sequence

from resnet_recipes.run_folder.facts import RunFacts
from resnet_recipes.run_folder.metrics import Record, filter_kind, get_top1
from resnet_recipes.run_folder.summary import read_mlperf_clock

#: File of a run folder.
RESULT = "result_0.txt"

_START, _STOP, _POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"

#: Seconds of MLPerf's clock, kind of event, key, value, metadata.
Event = tuple[float, str, str, object, dict[str, object]]


def format_result(
    records: Sequence[Record],
    facts: RunFacts,
    values: Mapping[str, object],
    has_reached_target: bool,
) -> str:
    """Return the text of RESULT.

    `values` describe the recipe under MLPerf's keys. Times are MLPerf's clock added to the start
    of the first session, so an interruption leaves no gap.
    """
    zero = filter_kind(records, "begin")[0]["time"]
    events = [*_initialisation(records, facts, values), *_training(records, facts)]
    end = max((seconds for seconds, *_ in events), default=0.0)
    events.append(
        (end, _STOP, "run_stop", None, {"status": "success" if has_reached_target else "aborted"})
    )
    return "".join(_line(zero, *event) for event in events)


def _initialisation(
    records: Sequence[Record], facts: RunFacts, values: Mapping[str, object]
) -> Iterator[Event]:
    """Yield the events before the first access to data. The machine's file cache is not cleared."""
    before = -filter_kind(records, "begin")[0]["startup_seconds"]
    yield before, _POINT, "cache_clear", False, {}
    yield before, _START, "init_start", None, {}
    submission = {
        "benchmark": "resnet",
        "division": "open",
        "org": "resnet-recipes",
        "platform": facts.devices,
        "status": "research",
    }
    for key, value in (
        {f"submission_{key}": value for key, value in submission.items()} | dict(values)
    ).items():
        yield before, _POINT, key, value, {}
    yield 0.0, _STOP, "init_stop", None, {}
    yield 0.0, _START, "run_start", None, {}


def _training(records: Sequence[Record], facts: RunFacts) -> Iterator[Event]:
    """Yield epochs, counted from 1, evaluations, and the blocks of epochs between evaluations."""
    evaluated = [record["step"] for record in filter_kind(records, "evaluation")]
    before = epoch = block = 0  # the last reading, the open epoch, and the open block's first epoch

    def epoch_of(step: int) -> int:
        return -(-step // facts.steps_per_epoch)

    for record, seconds in read_mlperf_clock(records):
        step, kind = record["step"], record["kind"]
        if kind == "step" and not block:
            block = epoch or epoch_of(step)
            last = next(
                (epoch_of(done) for done in evaluated if done >= step), epoch_of(facts.total_steps)
            )
            yield (
                before,
                _START,
                "block_start",
                None,
                {"first_epoch_num": block, "epoch_count": last - block + 1},
            )
        if kind == "step" and not epoch:
            epoch = epoch_of(step)
            yield before, _START, "epoch_start", None, {"epoch_num": epoch}
        if kind == "epoch":
            yield seconds, _STOP, "epoch_stop", None, {"epoch_num": epoch}
            epoch = 0
        if kind == "evaluation":
            yield from _evaluation(record, seconds, epoch_of(step))
            yield seconds, _STOP, "block_stop", None, {"first_epoch_num": block}
            block = 0
        before = seconds


def _evaluation(record: Record, seconds: float, epoch: int) -> Iterator[Event]:
    began = seconds - record["seconds"] + record["raw_seconds"]
    yield began, _START, "eval_start", None, {"epoch_num": epoch}
    yield seconds, _POINT, "eval_accuracy", get_top1(record) / 100, {"epoch_num": epoch}
    yield seconds, _STOP, "eval_stop", None, {"epoch_num": epoch}


def _line(
    zero: float, seconds: float, kind: str, key: str, value: object, metadata: dict[str, object]
) -> str:
    event = {
        "namespace": "",
        "time_ms": round(1000 * (zero + seconds)),
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    return f":::MLLOG {json.dumps(event)}\n"

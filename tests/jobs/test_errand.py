"""An errand leaves its folder only if its logs say why ranks failed."""

import json

import pytest

from resnet_recipes.base.errors import ExitCode
from resnet_recipes.jobs import errand as room
from resnet_recipes.jobs.group import Group
from resnet_recipes.recipe.compose import compose
from resnet_recipes.run_folder import CONFIG, JOB
from resnet_recipes.run_folder.ending import Ending


@pytest.mark.parametrize("code", [*ExitCode])
@pytest.mark.parametrize("raises", [False, True])
def test_a_folder_stays_if_ranks_failed_and_only_then(code, raises, monkeypatch):
    seen = []

    def start(folder, group, say):
        seen.extend((folder, json.loads((folder / JOB).read_text()), (folder / CONFIG).is_file()))
        return Ending(code)

    monkeypatch.setattr(room.launcher, "start", start)
    recipe = compose("mild", ["data=images"], needs_data=False).recipe
    try:
        with room.errand("fit", recipe, None, Group(), print, top=3) as (folder, ending):
            assert ending.code == code
            if raises:
                raise KeyError
    except KeyError:
        assert raises
    assert seen == [folder, {"job": "fit", "top": 3}, True]
    assert folder.exists() == (code == ExitCode.FAILED)

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.paths import typed_path


@pytest.mark.parametrize(
    ("text", "copy"),
    [
        ("s3://bucket/a b", "aws s3 sync 's3://bucket/a b' local"),
        ("GS://bucket/a", "gcloud storage rsync -r GS://bucket/a local"),
        ("memory://a", "copy it to a folder of this machine"),
    ],
)
def test_an_address_is_named_as_one_with_the_command_that_copies_it(text, copy):
    with pytest.raises(RecipeError) as refused:
        typed_path("data", text)
    (problem,) = refused.value.problems
    assert (problem.key, problem.value) == ("data", text)
    assert problem.fix.partition("   and type local")[0] == copy
    assert "is an address" in problem.rule


@pytest.mark.parametrize("text", ["C:/images", "a:b", "/data//images", "s3:/a"])
def test_names_with_colons_are_paths(text):
    assert str(typed_path("data", text)) == text.replace("//", "/")


def test_the_kinds_of_addresses_that_images_come_from_are_listed():
    with pytest.raises(RecipeError, match="s3://, gs://, https://, http://"):
        typed_path("data.root", "ftp://host/images")

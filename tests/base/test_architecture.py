from torchvision import models

from resnet_recipes.base.architecture import ModelConfig


def test_a_librarys_resnets_alone_take_the_recipes_initial_weights():
    for name in models.list_models(module=models):
        is_resnet = models.get_model_builder(name).__module__.endswith(".resnet")
        assert is_resnet == (not list(ModelConfig(name=f"torchvision:{name}").problems())), name

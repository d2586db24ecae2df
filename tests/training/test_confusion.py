import torch

from resnet_recipes.training.confusion import Confusion


def test_classes_and_mistakes_are_those_of_a_count_by_hand():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 6, (200,), generator=generator) * 2  # odd classes have no images
    best = torch.randint(0, 12, (200, 5), generator=generator)
    confusion, counts = Confusion(), {}
    for start in range(0, 200, 64):
        confusion.see(best[start : start + 64], labels[start : start + 64])
    for label, guess in zip(labels.tolist(), best[:, 0].tolist(), strict=True):
        counts[label, guess] = counts.get((label, guess), 0) + 1
    for label, images, correct in confusion.classes():
        assert images == sum(count for (true, _), count in counts.items() if true == label)
        assert correct == counts.get((label, label), 0)
    shares = [result.top1_percent for result in confusion.classes()]
    assert shares == sorted(shares)
    assert len(shares) == 6
    wrong = {pair: count for pair, count in counts.items() if pair[0] != pair[1]}
    assert {(true, guess): count for true, guess, count in confusion.mistakes(1000)} == wrong
    assert confusion.mistakes(1)[0].images == max(wrong.values())

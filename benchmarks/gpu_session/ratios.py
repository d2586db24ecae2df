"""Speed ratios of our steps to the best peer, from the rows of a call."""

from collections import defaultdict
from collections.abc import Iterator
from statistics import mean

#: Our loops, and the peers that do the same work.
PEERS = {
    "ours, no methods": ("hand-written loop", "timm", "torchvision reference"),
    "ours, Mild": ("hand-written loop, blurred", "timm, blurred", "Composer, transcribed"),
}
MODES = {"reduce-overhead", "max-autotune-no-cudagraphs"}


def compute_ratios(rows: list[dict]) -> Iterator[dict]:
    """Yield the ratio of our images per second to the best peer, for each image size."""
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.get("unit") == "images/s" and "loop" in row:
            rates[row["size"]][row["loop"]].append(row["value"])
    for size, rates_by_name in rates.items():
        for ours, peers in PEERS.items():
            peer_speeds = {
                name: mean(values)
                for name, values in rates_by_name.items()
                if _strip_mode(name) in peers
            }
            if ours in rates_by_name and peer_speeds:
                best = max(peer_speeds, key=peer_speeds.get)
                ratio = mean(rates_by_name[ours]) / peer_speeds[best]
                yield {
                    "case": f"{size}: {ours} over {best}",
                    "value": round(ratio, 3),
                    "unit": "x",
                    "ours": mean(rates_by_name[ours]),
                    "peer": peer_speeds[best],
                    "ratio": ratio,
                }


def _strip_mode(name: str) -> str:
    """Return a loop's name without its compile mode."""
    return ", ".join(part for part in name.split(", ") if part not in MODES)

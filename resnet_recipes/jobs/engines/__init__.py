"""Runs as jobs of engines that others operate: Slurm, SkyPilot, Kubeflow Trainer, torchx."""

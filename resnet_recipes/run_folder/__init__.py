"""What is written in the folder of a run: names, metrics, summary, endings; read without torch."""

"""The packaged recipes: one YAML file each."""

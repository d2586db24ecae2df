"""The .beton format of FFCV: checked, read and written."""

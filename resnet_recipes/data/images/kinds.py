"""The kinds of image files that are read."""

from importlib.util import find_spec

#: Suffixes by Pillow's name of the format. Suffixes decide which files are images; their content
#: decides of which kind.
KINDS = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "PPM": (".ppm", ".pgm"),
    "TIFF": (".tif", ".tiff"),
    "GIF": (".gif",),
}

if find_spec("PIL._avif"):  # in Pillow's own wheels since 11.3
    KINDS["AVIF"] = (".avif",)
if find_spec("pillow_heif"):
    KINDS["HEIF"] = (".heic", ".heif")

FORMATS = tuple(KINDS)
SUFFIXES = tuple(suffix for suffixes in KINDS.values() for suffix in suffixes)

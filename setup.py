"""Build the native decoder with the package.

If that is not possible, the package works without it.
"""

import ctypes
import json
import re
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NAME = "resnet_recipes.data.native.libengine"
SOURCES = Path("resnet_recipes/data/native/src")
MISSED = (
    "the native decoder was not built ({error}). It needs a C++17 compiler and libjpeg-turbo's "
    "headers; on Debian and Ubuntu:  sudo apt-get install g++ libjpeg-dev. Everything else works."
)

#: Ways to link the library, best first. Code that uses private parts of libjpeg-turbo requires
#: static linking.
LINKS = (
    (["JPEG_INSIDE"], ["-l:libjpeg.a", "-Wl,--exclude-libs,ALL"]),
    ([], ["-ljpeg", "-ldl"]),
)


class BuildLibrary(build_ext):
    """Builds shared libraries for ctypes, which work with every version of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return a name without the Python version."""
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Return nothing: the sources mark their exports."""
        return []

    def build_extensions(self) -> None:
        """Build the library, or warn why it cannot be built."""
        self.extensions = [ext for ext in self.extensions if self._builds(ext)]

    def _builds(self, ext: Extension) -> bool:
        for macros, links in LINKS:
            ext.define_macros = [(macro, None) for macro in macros]
            ext.extra_link_args = ["-pthread", *links]
            try:
                self.build_extension(ext)
            except Exception as error:  # a compiler may be missing or fail in any way
                Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
                why = error
            else:
                return True
        self.warn(MISSED.format(error=why))
        return False

    def copy_extensions_to_source(self) -> None:
        """Copy the library, if it was built."""
        if self.extensions:
            super().copy_extensions_to_source()


class LibraryWheel(bdist_wheel):
    """A wheel for one platform and every Python; without the library, for every platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the wheel tag, which depends on whether the library was built."""
        built = self.get_finalized_command("build_ext").extensions
        return "py3", "none", super().get_tag()[2] if built else "any"

    def write_wheelfile(self, wheelfile_base: str, **rest: str) -> None:
        """Write WHEEL, and the list of third-party components (PEP 770, CycloneDX)."""
        super().write_wheelfile(wheelfile_base, **rest)
        library = Path(wheelfile_base).parent / f"{NAME.replace('.', '/')}.so"
        name, version = self.distribution.get_name(), self.distribution.get_version()
        document = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": make_component(f"pkg:pypi/{name}@{version}", "Apache-2.0")},
            "components": [
                *iterate_report_components(),
                *(iterate_linked_components(library) if library.exists() else ()),
            ],
        }
        folder = Path(wheelfile_base, "sboms")
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.cdx.json").write_text(json.dumps(document, indent=2) + "\n")


def iterate_linked_components(library: Path) -> Iterator[dict]:
    """Yield the libjpeg-turbo that is linked statically into the decoder, if any."""
    loaded = ctypes.CDLL(str(library.resolve()))
    loaded.engine_jpeg.restype = ctypes.c_char_p
    words = loaded.engine_jpeg().decode().split()  # a path if it is linked dynamically
    if words[-1] == "inside":
        yield make_component(
            f"pkg:generic/libjpeg-turbo@{words[1]}", "IJG AND BSD-3-Clause AND Zlib"
        )


def iterate_report_components() -> Iterator[dict]:
    """Yield the JavaScript libraries of the report; the first line of the file names them."""
    with Path("resnet_recipes/report/page/vega.min.js").open(encoding="utf-8") as file:
        for name, version in re.findall(r"([\w-]+) (\d+\.\d+\.\d+)", file.readline()):
            yield make_component(f"pkg:npm/{name.lower()}@{version}", "BSD-3-Clause AND ISC")


def make_component(purl: str, license: str) -> dict:
    """Return a component of a CycloneDX document."""
    name, version = purl.rpartition("/")[2].split("@")
    licenses = [{"expression": license}]
    return {"type": "library", "name": name, "version": version, "purl": purl, "licenses": licenses}


DECODER = Extension(
    NAME,
    sources=sorted(map(str, SOURCES.glob("*.cpp"))),
    depends=sorted(map(str, SOURCES.glob("*.h"))),
    # Python passes its flags first. Its -fwrapv would prevent the vectorization of loops whose
    # indices might overflow.
    extra_compile_args=[
        "-std=c++17",
        "-O3",
        "-fno-wrapv",
        "-g0",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-fvisibility=hidden",
        "-pthread",
    ],
    language="c++",
)

#: Addresses of the images and pages that README.md links to, for the package index.
SOURCE = "https://github.com/resnet-recipes/resnet-recipes/blob/main/"
PICTURES = "https://raw.githubusercontent.com/resnet-recipes/resnet-recipes/main/"


def make_links_absolute(readme: str) -> str:
    """Return README.md with absolute links."""
    return re.sub(
        r"(!?)\[([^]]*)\]\((?!https?:|#)([^)]+)\)",
        lambda link: f"{link[1]}[{link[2]}]({PICTURES if link[1] else SOURCE}{link[3]})",
        readme,
    )


setup(
    long_description=make_links_absolute(Path("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    # recipes/ is included through a link; Hydra looks for plugins in hydra_plugins/
    packages=[
        *find_packages(include=["resnet_recipes*"]),
        "hydra_plugins",
        "hydra_plugins.resnet_recipes",
    ],
    ext_modules=[DECODER],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": LibraryWheel},
)

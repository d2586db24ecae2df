"""Build the native decoder with the package; if that is not possible, the package works without it."""

from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("resnet_recipes/data/native/src")
LIBRARY = "resnet_recipes.data.native.libengine"
NEEDS = "a C++17 compiler and libjpeg-turbo's headers; on Debian and Ubuntu:  sudo apt-get install g++ libjpeg-dev"


class BuildLibrary(build_ext):
    """Build a plain shared library, which fits every version of Python because it is loaded with ctypes."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return a name without a Python version in it."""
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Return nothing: the sources mark what they export."""
        return []

    def build_extension(self, ext: Extension) -> None:
        """Build, or say what is missing and continue without."""
        try:
            super().build_extension(ext)
        except Exception as error:                  # whatever goes wrong with a compiler, or without one
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            self.extensions.remove(ext)
            self.warn(f"the native decoder was not built ({error}). It needs {NEEDS}. Everything else works.")

    def copy_extensions_to_source(self) -> None:
        """Copy what was built, which may be nothing."""
        if self.extensions:
            super().copy_extensions_to_source()


class LibraryWheel(bdist_wheel):
    """A wheel for one platform and every Python; without the library, for every platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag that fits what was built."""
        built = self.get_finalized_command("build_ext").extensions
        return "py3", "none", super().get_tag()[2] if built else "any"


setup(
    packages=[*find_packages(include=["resnet_recipes*"]), "resnet_recipes.recipes"],     # recipes/ is packaged inside
    ext_modules=[Extension(
        LIBRARY,
        sources=sorted(map(str, SOURCES.glob("*.cpp"))),
        depends=sorted(map(str, SOURCES.glob("*.h"))),
        libraries=["jpeg"],
        extra_compile_args=["-std=c++17", "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden",
                            "-pthread"],
        extra_link_args=["-pthread"],
        language="c++",
    )],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": LibraryWheel},
)

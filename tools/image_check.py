"""Do what the Dockerfile says in a root file system of Debian's packages, and train in it.

    apt-get install mmdebstrap
    python tools/image_check.py [--device cpu]

Needs root, but no container engine: RUN is a chroot. Takes some minutes, and 12 GB in a temporary
folder.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEMO = """
import pathlib
from resnet_recipes.data import demo
demo.write(pathlib.Path("images"))
"""

#: Settings with which the demo takes seconds.
SHORT = "max_duration=2ba ssr=1 schedule.warmup=1ba"


class Stage:
    """One stage of the Dockerfile: a folder that becomes a root file system."""

    def __init__(self, base: Path, root: Path, device: str):
        self.root = root
        self.user, self.place = "0", "/"
        self.variables = {
            "HOME": "/",
            "PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin",
            "DEVICE": device,
        }
        subprocess.run(["cp", "-a", base, root], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc")
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "trusted.crt")  # of a proxy's too

    def run(self, command: str) -> str:
        """Run a command in the stage, and return what it printed."""
        environment = ["PIP_CERT=/trusted.crt"]
        environment += [f"{name}={value}" for name, value in self.variables.items()]
        environment += [
            f"{name}={os.environ[name]}" for name in os.environ if "PROXY" in name.upper()
        ]
        inside = f"cd {self.place} && {command}"
        words = ["chroot", f"--userspec={self.user}", self.root, "env", "-i", *environment]
        done = subprocess.run([*words, "sh", "-c", inside], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"failed with {done.returncode}: {command}")
        return done.stdout

    def follow(self, word: str, rest: str, stages: dict[str, "Stage"]) -> None:
        """Do what one line of the Dockerfile says."""
        if word == "RUN":
            print("RUN", rest[:100], flush=True)
            self.run(rest)
        elif word == "COPY" and rest.startswith("--from="):
            stage, source, target = re.fullmatch(r"--from=(\S+) (\S+) (\S+)", rest).groups()
            shutil.copytree(stages[stage].root / source[1:], self.root / target[1:])
        elif word == "COPY":
            kept = [
                line[1:] for line in (ROOT / ".dockerignore").read_text().split() if "!" in line
            ]
            files = subprocess.run(
                ["git", "ls-files", "-z", *kept], cwd=ROOT, stdout=subprocess.PIPE, check=True
            )
            target = self.root / self.place[1:]
            command = ["xargs", "-0", "cp", "-a", "--parents", "-t", str(target)]
            subprocess.run(command, input=files.stdout, cwd=ROOT, check=True)
        elif word == "WORKDIR":
            self.place = self.variables["HOME"] = rest
            (self.root / rest[1:]).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            self.user = rest
        elif word == "ENV":
            name, value = rest.split("=", 1)
            self.variables[name] = value.replace("$PATH", self.variables["PATH"])


def main() -> int:
    """Return 0 if every step works, and a training of two steps in the end."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--base", type=Path, help="a root file system made before")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="image-"))
    base = arguments.base or folder / "base"
    if not arguments.base:
        command = ["mmdebstrap", "--variant=apt", "bookworm", base]
        subprocess.run(command, check=True)
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    stages: dict[str, Stage] = {}
    for line in filter(None, text.replace("\\\n", " ").splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "image"
            stage = stages[name] = Stage(base, folder / name, arguments.device)
        else:
            stage.follow(word, " ".join(rest.split()), stages)
    print(stage.run("id; which gcc cc g++ || echo no compiler"), end="")
    stage.run(f"python -c {shlex.quote(DEMO)}")
    print(stage.run(f"resnet-train recipe=demo data=images launch.device=cpu {SHORT} 2>&1"))
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

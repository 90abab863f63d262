"""How long a user waits: commands in fresh processes, beside an empty Python and one that imports NumPy."""

import argparse
import subprocess
import sys
import time

# What the installed `trainwright` does, without its path being known.
LAUNCH = "import sys; from trainwright.cli.main import main; sys.exit(main())"
COMMANDS = {
    "python -c pass": ["pass"],
    'python -c "import numpy"': ["import numpy"],
    "trainwright --help": [LAUNCH, "--help"],
    "trainwright plan llama3-405b h100:16384": [LAUNCH, "plan", "llama3-405b", "h100:16384"],
}


def wall_s(arguments: list[str]) -> float:
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="runs, of which the fastest counts")
    options = parser.parse_args()

    times_s = {name: min(wall_s(each) for _ in range(options.repeat)) for name, each in COMMANDS.items()}
    bare_s, numpy_s = list(times_s.values())[:2]
    print(f"{'command':42} {'seconds':>8} {'x python':>9} {'x numpy':>8}")
    for name, time_s in times_s.items():
        print(f"{name:42} {time_s:8.3f} {time_s / bare_s:9.1f} {time_s / numpy_s:8.1f}")


if __name__ == "__main__":
    main()

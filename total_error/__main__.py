"""Command line of the laboratory: ``total-error``, ``python -m total_error``.

total-error compressor=top_k model=mlp       same as python run.py ...
total-error results table outputs            same as python -m results ...
"""

import sys


def main() -> int:
    """Run the command; return its exit status."""
    try:
        if sys.argv[1:2] == ["results"]:
            from results.__main__ import main as results

            return results(sys.argv[2:])
        from trainers.launch.stopping import begin_command

        begin_command()
        from run import run_command
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        if error.name not in LAB:
            raise
        install = "pip install -e '.[lab]'"
        print(f"error: total-error needs {error.name}, which is not installed: {install}", file=sys.stderr)
        return 1
    return run_command()


# Packages of the extra [lab] that a command imports first
LAB = ("hydra", "omegaconf", "pydantic", "rich", "yaml")

if __name__ == "__main__":
    sys.exit(main())

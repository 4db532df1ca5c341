"""The command `usboost`, as `python -m usboost`, too."""

from usboost.cli.interrupts import CODE, interrupts
from usboost.errors import print_readably


def main() -> None:
    """Run the command in a process of its own, which answers Ctrl-C while it is still loading."""
    interrupts.install()
    print_readably()
    try:
        from usboost.cli.app import app

        app(prog_name="usboost")
    except KeyboardInterrupt:
        interrupts.end()
    except SystemExit as ended:
        if ended.code == CODE:
            interrupts.end()
        interrupts.over()
        raise


if __name__ == "__main__":
    main()

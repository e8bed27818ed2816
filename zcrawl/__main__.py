"""Run the command `zcrawl` by `python -m zcrawl`."""

from zcrawl.cli.main import main

if __name__ == "__main__":
    main()

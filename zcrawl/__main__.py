"""`python -m zcrawl` is `zcrawl`."""

from zcrawl.cli.main import main

if __name__ == "__main__":
    main()

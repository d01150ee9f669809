"""Backs a store up and restores it, over and over, until it is killed: a process for the tests."""

import sys
from pathlib import Path

from remit_cli.store_backup import back_up, restore

if __name__ == "__main__":
    print("begun", flush=True)
    while True:
        back_up(Path(sys.argv[1]), Path(sys.argv[2]))
        restore(Path(sys.argv[2]), Path(sys.argv[1]), force=True)

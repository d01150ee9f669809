"""Runs a script of the console (`check`, `test`) with the Node of a wheel; `check-quickly` leaves slow rules out.

What passed is not run again before a file that it reads has changed: the two take more than a minute of CPU together.
"""

import os
import sys

from passed import ROOT, digest, files_in, has_passed

sys.path.insert(0, str(ROOT / "packages" / "server"))

from hatch_build import NotBuilt, install, npm

WEB = ROOT / "web"
# The checks read the client for TypeScript, too; the lock file stands for what is installed.
READ = (WEB, ROOT / "clients" / "ts")


def main() -> None:
    """Run the script that is named, unless it passed with these files before."""
    note, found = WEB / "node_modules" / f".remit-passed-{sys.argv[1]}", digest(files_in(*READ))
    if has_passed(note, found):
        return
    try:
        node = install(WEB)
    except NotBuilt as error:
        sys.stderr.write(f"NOT TESTED: the sources of the console: {error}\n")
        return
    script = sys.argv[1].removesuffix("-quickly")
    if script != sys.argv[1]:
        os.environ["QUICK"] = "1"  # `eslint.config.js` reads it
    try:
        npm(node, WEB, "run", "--silent", script)
    except NotBuilt as error:
        sys.exit(str(error))
    note.write_text(found, encoding="ascii")


if __name__ == "__main__":
    main()

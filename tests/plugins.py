"""Plugins of strangers, as pip installs them."""

from pathlib import Path


def install_plugin(folder: Path, name: str, source: str) -> dict[str, str]:
    """Install a module as a plugin in a folder; return the variables of a process that finds it."""
    (folder / f"{name}.py").write_text(source)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[remit.plugins]\n{name} = {name}\n")
    return {"PYTHONPATH": str(folder)}

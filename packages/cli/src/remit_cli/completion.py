"""`remit completion`: shell completion of commands, agents, devices, runs and questions."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for your SHELL. It completes agent and device names, and run and question ids.

    \b
    bash: add this line to ~/.bashrc
      eval "$(remit completion bash)"

    \b
    zsh: add this line to ~/.zshrc, after compinit
      eval "$(remit completion zsh)"

    \b
    fish: run this once
      remit completion fish > ~/.config/fish/completions/remit.fish

    \b
    Example:
      remit completion bash
    """
    from click.shell_completion import get_completion_class

    command = click.get_current_context().find_root().command
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(script(command, {}, "remit", "_REMIT_COMPLETE").source())
